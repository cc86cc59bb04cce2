/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that threads use during a fault. There is one for each thread that needs one. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <stddef.h>

/* Bytes of a buffer, and of a large buffer. */
#define SCRATCH_SIZE ((size_t)64 << 10)
#define SCRATCH_LARGE_SIZE ((size_t)2 << 20)

/*
 * Takes a buffer for `size` bytes with arbitrary contents, after an inaccessible guard page. near:
 * an address that belongs to the thread, which selects the buffer that the thread used last. NULL:
 * there is no memory. Both functions are safe in a signal handler.
 */
char *scratch_take(size_t size, const void *near);
void scratch_give(size_t size, const void *near, char *buffer);

#endif
