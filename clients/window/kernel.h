/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that the kernel maps: no segments, no budget, and other processes may map them as well. */
#ifndef KERNEL_H
#define KERNEL_H

#include "window/hints.h"
#include "pmpi/error.h"

#include <stddef.h>
#include <stdint.h>

/* Hints that have a meaning for what the library pages only are an error. */
void kernel_check(const struct hints *h, struct error *e);
/* Allocates the bytes of the file before `end`, because a store without room on the disk raises
 * SIGBUS. name: the file's name, for errors. */
void kernel_make_room(int fd, const char *name, uint64_t end, struct error *e);
/* Bytes [offset, offset + len) of the file, from there on (what lies before on the first page is mapped as well). NULL with
 * an error. */
char *kernel_map(int fd, const struct hints *h, size_t len, struct error *e);
void kernel_unmap(char *at, size_t len, const struct hints *h);
/* Makes them durable. Whole pages: at the borders bytes of neighbours too, which does no harm. */
void kernel_sync(char *at, size_t len, const struct hints *h, struct error *e);

#endif
