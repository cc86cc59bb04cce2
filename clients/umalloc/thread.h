/* SPDX-License-Identifier: BSD-3-Clause */
/* The bindings of threads to heaps: the arena, and a cache of small allocations. */
#ifndef UMALLOC_THREAD_H
#define UMALLOC_THREAD_H

#include "umalloc/arena.h"

struct binding {
	struct umalloc_heap *heap;  /* NULL: the heap has ended */
	int flags;                  /* jemalloc's flags for allocations: the arena, and the cache */
	int free_flags;             /* flags for the next free */
	int cache_flags;            /* flags for later frees: the cache */
	unsigned cache;             /* jemalloc's number of the cache; NO_CACHE: there is none */
	unsigned arena;             /* number of the arena in the heap */
	struct binding *next;       /* next binding of the thread */
	struct binding *heap_next, **heap_link; /* list of the heap's bindings */
};

/* The binding to the heap that the thread used last. */
extern _Thread_local struct binding *thread_last;
/* Returns the binding to a heap, which it makes if necessary. NULL with errno: there is none. */
struct binding *thread_bind(struct umalloc_heap *heap);

static inline struct binding *thread_binding(struct umalloc_heap *heap)
{
	struct binding *b = thread_last;

	return __builtin_expect(b && b->heap == heap, 1) ? b : thread_bind(heap);
}

/* Frees the allocations in the thread's cache. */
void thread_flush(struct binding *b);
/* Ends the bindings of all threads to a heap. */
void thread_forget_heap(struct umalloc_heap *heap);
/* Called in a forked child, which has one thread and cannot use the heaps of its parent. */
void thread_forget_all(void);

#endif
