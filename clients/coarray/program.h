/* SPDX-License-Identifier: BSD-3-Clause */
/* The identity of the running program, which the manifest records. */
#ifndef COARRAY_PROGRAM_H
#define COARRAY_PROGRAM_H

#include "window/manifest.h"

#include <stdbool.h>

#define PROGRAM_TEXT 100

void program_find(struct program *p);
/* Compares the names, and the build IDs where both programs have one, otherwise the sizes where
 * both are known. */
bool program_is_same(const struct program *a, const struct program *b);
/* Formats the name, size and build ID for a message, shortened. */
void program_describe(char text[PROGRAM_TEXT], const struct program *p);

#endif
