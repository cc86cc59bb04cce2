/* SPDX-License-Identifier: BSD-3-Clause */
/* What a thread keeps of a heap: which arena it allocates from, and a cache of small allocations. */
#ifndef UMALLOC_THREAD_H
#define UMALLOC_THREAD_H

#include "umalloc/heap.h"

struct binding {
	struct umalloc_heap *heap;       /* NULL: it has ended */
	int flags;                       /* for jemalloc: the arena, and the cache */
	int free_flags;                  /* ... where it frees next */
	int cache_flags;                 /* ... and from then on */
	unsigned cache;                  /* its number; NO_CACHE: there is none */
	unsigned arena;                  /* which of the heap's */
	struct binding *next;            /* of the thread */
	struct binding *heap_next, **heap_link; /* of the heap */
};

/* Of the heap that the thread used last. */
extern _Thread_local struct binding *thread_last;
/* The same for any heap, made if it is not there. NULL with errno. */
struct binding *thread_bind(struct umalloc_heap *heap);

static inline struct binding *thread_binding(struct umalloc_heap *heap)
{
	struct binding *b = thread_last;

	return __builtin_expect(b && b->heap == heap, 1) ? b : thread_bind(heap);
}

/* What the thread keeps to allocate it again is free. */
void thread_flush(struct binding *b);
/* The heap ends: no thread has anything of it any more. */
void thread_forget_heap(struct umalloc_heap *heap);
/* In a forked child: there are no other threads, and this one has nothing of its parent's heaps. */
void thread_forget_all(void);

#endif
