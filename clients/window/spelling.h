/* SPDX-License-Identifier: BSD-3-Clause */
/* Suggestions for unknown names of hints and variables. */
#ifndef SPELLING_H
#define SPELLING_H

#include <stddef.h>

/* Number of single-letter changes that turn one name into the other. Names of more than 63 letters
 * have the distance SIZE_MAX to all others. */
size_t spelling_distance(const char *a, const char *b);

/* Warns that a hint or variable (`what`) is unknown. meant: the name to suggest, or NULL. */
void spelling_warn(const char *what, const char *name, const char *meant);

#endif
