/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces of memory for the time that a fault takes, for as many threads as need one at a time. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <stddef.h>

/* Bytes of a piece; and of a large piece, of which few are kept. */
#define SCRATCH_SIZE ((size_t)64 << 10)
#define SCRATCH_LARGE ((size_t)2 << 20)

/* A piece of whole pages, of any contents, with a page without rights before it. `near`: some
 * address of the thread's own, by which it finds its last piece. NULL: there is no memory. All
 * functions are safe in a signal handler. */
char *scratch_take(const void *near);
void scratch_give(const void *near, char *piece);
char *scratch_take_large(const void *near);
void scratch_give_large(const void *near, char *piece);

#endif
