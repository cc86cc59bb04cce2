/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of bytes in files. */
#ifndef EXTENT_H
#define EXTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes [from, to) of a file on a machine. Two windows must not have a byte in common. to 0: no
 * bytes. */
struct extent {
	uint64_t machine, dev, ino, from, to;
};

/* Sets the extent to bytes [from, from + size) of an open file. */
void extent_file(struct extent *extent, int fd, uint64_t from, size_t size);
/* Whether two extents have bytes in common. */
bool extent_overlaps(const struct extent *a, const struct extent *b);

#endif
