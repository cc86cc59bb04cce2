/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of shared frames: one memory object of the process, which other processes map. */
#ifndef SHARED_POOL_H
#define SHARED_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arena n of the pool has the bytes from n << SHARED_POOL_SPAN_SHIFT on. */
#define SHARED_POOL_SPAN_SHIFT 36
#define OBJECT_SPANS 65536

/* Makes the object, unless it is there: before the first shared frame is taken. 0, or -errno with a sentence. */
int shared_pool_open(void);
/* Its descriptor; -1: there is none. */
int shared_pool_fd(void);
/* In a forked child: it is not there. */
void shared_pool_forget(void);

/* Maps the first len bytes of an arena at base, in place of what is there. Safe in a signal handler. */
bool shared_pool_map(uint32_t arena, void *base, size_t len);
/* Bytes [at, at + len) of an arena have no memory any more, whoever has them mapped. The same. */
void shared_pool_drop(uint32_t arena, size_t at, size_t len);

#endif
