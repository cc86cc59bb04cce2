/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numbers as users write them in variables, keys, hints and options. The library, its drivers,
 * clients and tools, and the package for Python share this parser. The locale has no effect. It
 * needs no other file of the library.
 */
#ifndef COMMON_SIZE_H
#define COMMON_SIZE_H

#include <stdint.h>

/* Types in messages that tell the valid values. */
#define A_SIZE "a size (65536, 64K, 64KiB or 0.5G)"
#define A_SEGMENT_SIZE "auto, or a power of two of at least the page size (64K, 2M)"
/* The forms of a size in full, for usage texts. */
#define SIZE_FORMS "a number of bytes, or a number with a unit (64K, 64KB, 64KiB, 0.5G, up to T)"

/*
 * Bytes from "4096", "64K", "64 KB", "64kiB", "0.5G". Units are powers of 1024, with or without B
 * or iB, in upper or lower case. A fraction needs a unit, and is rounded down to a whole byte.
 * Blanks are allowed between number and unit only. Returns 0 or -EINVAL.
 */
int size_parse(const char *text, uint64_t *bytes);
/* A whole number without a unit. Returns 0 or -EINVAL. */
int size_parse_count(const char *text, uint64_t *count);
/*
 * Whole numbers from "1000x200", at most max of them. Returns how many; 0: the text has another
 * form.
 */
unsigned size_parse_dims(const char *text, uint64_t *dims, unsigned max);
/* 12.5 from "12.5%"; more than 0 and at most 100. Returns 0 or -EINVAL. */
int size_parse_percent(const char *text, double *percent);
/* A decimal number such as "0.8", ".8" or "1". Returns 0 or -EINVAL. */
int size_parse_decimal(const char *text, double *number);

#endif
