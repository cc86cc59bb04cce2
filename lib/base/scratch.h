/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that threads use during a fault. There is one for each thread that needs one. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <stddef.h>

/* Bytes of a stack and of a small buffer, and of a large buffer. */
#define SCRATCH_SIZE ((size_t)64 << 10)
#define SCRATCH_LARGE_SIZE ((size_t)2 << 20)

enum scratch {
	SCRATCH_STACK,        /* after an inaccessible guard page */
	SCRATCH_SMALL, SCRATCH_LARGE
};

/* The kind of buffers for `len` bytes. */
static inline enum scratch scratch_for(size_t len)
{
	return len <= SCRATCH_SIZE ? SCRATCH_SMALL : SCRATCH_LARGE;
}

/*
 * Takes a buffer with arbitrary contents. near: an address that belongs to the thread, by which a
 * thread finds the stack again that it used last. NULL: there is no memory. Both functions are safe
 * in a signal handler.
 *
 * Buffers other than stacks are on huge pages if the kernel has any. A request for memory on small
 * pages consists of many pieces: in a virtual machine, a read of 256 KiB took three times as long.
 */
char *scratch_take(enum scratch kind, const void *near);
void scratch_give(enum scratch kind, const void *near, char *buffer);
/* The process has locked its memory: unlocks the buffers, and frees the memory of idle ones. */
void scratch_unlock(void);
/* In a forked child: the child has none of the buffers on huge pages. */
void scratch_forget(void);

#endif
