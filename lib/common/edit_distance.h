/* SPDX-License-Identifier: BSD-3-Clause */
/* The similarity of names, for suggestions when a user has misspelled one. */
#ifndef COMMON_EDIT_DISTANCE_H
#define COMMON_EDIT_DISTANCE_H

#include <stddef.h>

/*
 * Number of single-letter changes that turn the first `len` bytes of `name` into `known` (the
 * Levenshtein distance). It is SIZE_MAX if `known` has more than 63 letters.
 */
size_t edit_distance(const char *name, size_t len, const char *known);

#endif
