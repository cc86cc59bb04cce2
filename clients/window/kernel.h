/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that the kernel maps: they have no segments and no budget, and other processes can map them
 * as well. */
#ifndef KERNEL_H
#define KERNEL_H

#include "window/hints.h"
#include "pmpi/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets an error for hints that apply to the library's mappings only. */
void kernel_check(const struct hints *h, struct error *e);
/* Allocates the bytes of the file before `end`, because a store without room on the disk raises
 * SIGBUS. name: the file's name, for errors. */
void kernel_make_room(int fd, const char *name, uint64_t end, struct error *e);
/* Maps len bytes of the file from h->offset on, and returns the address of the first one, which may
 * be inside a page. NULL with an error. */
char *kernel_map(int fd, const struct hints *h, size_t len, struct error *e);
void kernel_unmap(char *at, size_t len, const struct hints *h);
/* Makes bytes durable, in whole pages. */
void kernel_sync(char *at, size_t len, const struct hints *h, struct error *e);

/* ---- Ranges of bytes in files ---- */

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
