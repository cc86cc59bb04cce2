/* SPDX-License-Identifier: BSD-3-Clause */
/* The known name that an unknown one most likely stands for. */
#ifndef SPELLING_H
#define SPELLING_H

#include <stddef.h>

/* Single-letter changes that turn one name into the other; names of more than 63 letters are far from all others. */
size_t spelling_distance(const char *a, const char *b);

/* Tells the user that a key or variable is unknown, with the known name, or NULL. */
void spelling_warn(const char *what, const char *name, const char *meant);

#endif
