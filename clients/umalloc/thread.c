/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bindings of threads to heaps. A thread alone changes its own list of them; the lists of heaps, and the heap of a binding, are
 * under `lock`, under which jemalloc's caches are destroyed.
 */
#include "umalloc/thread.h"

#include "umalloc/error.h"

#include <errno.h>
#include <stdlib.h>

#define NO_CACHE UINT32_MAX

_Thread_local struct binding *thread_last;
static _Thread_local struct binding *mine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

/* Frees what it keeps, too. */
static void drop_cache(struct binding *b)
{
	if (b->cache != NO_CACHE)
		mallctl("tcache.destroy", NULL, NULL, &b->cache, sizeof(b->cache));
	b->cache = NO_CACHE;
}

static void unlink_from_heap(struct binding *b)
{
	*b->heap_link = b->heap_next;
	if (b->heap_next)
		b->heap_next->heap_link = b->heap_link;
	b->heap = NULL;
}

/* A thread ends, with these bindings. Others of its destructors may still allocate: then it has new ones. */
static void end_thread(void *list)
{
	struct binding *b = list, *next;

	mine = thread_last = NULL;
	for (; b; b = next) {
		next = b->next;
		pthread_mutex_lock(&lock);
		if (b->heap) {
			drop_cache(b);
			unlink_from_heap(b);
		}
		pthread_mutex_unlock(&lock);
		free(b);
	}
}

static void make_key(void)
{
	has_key = pthread_key_create(&key, end_thread) == 0;
}

static struct binding *find(const struct umalloc_heap *heap)
{
	struct binding *b = mine;

	while (b && b->heap != heap)
		b = b->next;
	return b;
}

/* One of a heap that has ended, or a new one. */
static struct binding *take(void)
{
	struct binding *b = find(NULL);

	if (b)
		return b;
	pthread_once(&once, make_key);
	b = has_key ? calloc(1, sizeof(*b)) : NULL;
	if (!b)
		return NULL;
	b->next = mine;
	if (pthread_setspecific(key, b)) {
		free(b);
		return NULL;
	}
	return mine = b;
}

/* Without a cache, if jemalloc has no number left for one, or no memory. */
static void make_cache(struct binding *b)
{
	size_t len = sizeof(b->cache);

	if (mallctl("tcache.create", &b->cache, &len, NULL, 0))
		b->cache = NO_CACHE;
	b->cache_flags = b->cache == NO_CACHE ? MALLOCX_TCACHE_NONE : MALLOCX_TCACHE(b->cache);
	/* What a new thread frees first mostly was handed to it, and has neighbours in other threads' hands: it must not come back as
	 * the first thing that this thread allocates. */
	b->free_flags = MALLOCX_TCACHE_NONE;
}

static int bind(struct binding *b, struct umalloc_heap *heap)
{
	long arena;

	b->arena = heap->next_arena++ % heap->arenas;
	arena = heap_arena(heap, b->arena);
	if (arena < 0)
		return -1;
	make_cache(b);
	b->flags = MALLOCX_ARENA((unsigned)arena) | b->cache_flags;
	pthread_mutex_lock(&lock);
	b->heap = heap;
	b->heap_next = heap->bindings;
	b->heap_link = &heap->bindings;
	if (b->heap_next)
		b->heap_next->heap_link = &b->heap_next;
	heap->bindings = b;
	pthread_mutex_unlock(&lock);
	return 0;
}

struct binding *thread_bind(struct umalloc_heap *heap)
{
	struct binding *b;

	if (heap->forked) {
		heap_fail(ENXIO, "cannot use the heap: it belongs to the parent process. Try to "
			  "create a heap after fork()");
		return NULL;
	}
	b = find(heap);
	if (!b) {
		b = take();
		if (!b) {
			heap_fail(ENOMEM, "cannot use the heap in this thread: no memory");
			return NULL;
		}
		if (bind(b, heap) < 0)
			return NULL;
	}
	return thread_last = b;
}

void thread_flush(struct binding *b)
{
	if (b->cache != NO_CACHE)
		mallctl("tcache.flush", NULL, NULL, &b->cache, sizeof(b->cache));
}

void thread_forget_heap(struct umalloc_heap *heap)
{
	pthread_mutex_lock(&lock);
	while (heap->bindings) {
		drop_cache(heap->bindings);
		unlink_from_heap(heap->bindings);
	}
	pthread_mutex_unlock(&lock);
}

void thread_forget_all(void)
{
	/* What the lists hold may be half changed: it is left alone. */
	pthread_mutex_init(&lock, NULL);
	thread_last = mine = NULL;
	if (has_key)
		pthread_setspecific(key, NULL);
}
