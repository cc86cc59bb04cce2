/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of shared frames: one memory object of the process, which other processes map. */
#ifndef SHARED_POOL_H
#define SHARED_POOL_H

#include <stddef.h>
#include <stdint.h>

/* Arena n of the pool is at offset n << SHARED_POOL_SPAN_SHIFT. */
#define SHARED_POOL_SPAN_SHIFT 36
#define SHARED_POOL_SPANS 65536
/* Size of the largest frame that can be shared: the smallest arena must fit into its span. */
#define SHARED_POOL_MAX_FRAME ((size_t)1 << 32)

/* Creates the object, unless it exists; called before the first shared frame is taken. Returns 0,
 * or -errno with a sentence. */
int shared_pool_open(void);
/* Returns the descriptor of the object; -1: there is none. */
int shared_pool_fd(void);
/* In a forked child: there is no object. */
void shared_pool_forget(void);

#endif
