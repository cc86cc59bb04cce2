/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes of files that somebody has. */
#ifndef EXTENT_H
#define EXTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes [from, to) of a file on a machine: no two regions may have the same. to 0: nothing that others could have. */
struct extent {
	uint64_t machine, dev, ino, from, to;
};

/* Bytes [from, from + size) of an open file. */
void extent_file(struct extent *extent, int fd, uint64_t from, size_t size);
/* The processes among which a process id means the same. Machines may be several to a kernel, as containers are: they share
 * files, but not these. */
uint64_t extent_processes(void);
/* Whether two extents have bytes in common. */
bool extent_overlaps(const struct extent *a, const struct extent *b);

#endif
