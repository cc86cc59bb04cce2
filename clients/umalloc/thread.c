/* SPDX-License-Identifier: BSD-3-Clause */
/* Only a thread changes its own list of bindings. `lock` protects the lists of heaps, and the heap
 * of a binding. Caches of jemalloc are destroyed under it. */
#include "umalloc/thread.h"

#include <errno.h>
#include <stdlib.h>

#include <ummap.h>

#define NO_CACHE UINT32_MAX

_Thread_local struct binding *thread_last;
static _Thread_local struct binding *bindings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

/* Frees the allocations in the cache, too. */
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

/* Called at the end of a thread. Its other destructors may still allocate, with new bindings. */
static void end_thread(void *list)
{
	struct binding *b = list, *next;

	bindings = thread_last = NULL;
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

static struct binding *find_binding(const struct umalloc_heap *heap)
{
	struct binding *b = bindings;

	while (b && b->heap != heap)
		b = b->next;
	return b;
}

/* Returns the binding to a heap that has ended, or a new one. */
static struct binding *take_binding(void)
{
	struct binding *b = find_binding(NULL);

	if (b)
		return b;
	pthread_once(&once, make_key);
	b = has_key ? calloc(1, sizeof(*b)) : NULL;
	if (!b)
		return NULL;
	b->next = bindings;
	if (pthread_setspecific(key, b)) {
		free(b);
		return NULL;
	}
	return bindings = b;
}

/* Without memory, or a number for another cache, the binding has no cache. */
static void make_cache(struct binding *b)
{
	size_t len = sizeof(b->cache);

	if (mallctl("tcache.create", &b->cache, &len, NULL, 0))
		b->cache = NO_CACHE;
	b->cache_flags = b->cache == NO_CACHE ? MALLOCX_TCACHE_NONE : MALLOCX_TCACHE(b->cache);
	/* The first allocation that a new thread frees was mostly made by another thread, which
	 * uses its neighbors: the cache must not give it to the new thread. */
	b->free_flags = MALLOCX_TCACHE_NONE;
}

static int bind_heap(struct binding *b, struct umalloc_heap *heap)
{
	long arena;

	b->arena = heap->next_arena++ % heap->arenas;
	arena = arena_number(heap, b->arena);
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

	if (heap->is_parents) {
		umseterror(ENXIO, "cannot use the heap: it belongs to the parent process. "
			   "Try to create a heap after fork()");
		return NULL;
	}
	b = find_binding(heap);
	if (!b) {
		b = take_binding();
		if (!b) {
			umseterror(ENOMEM, "cannot use the heap in this thread: no memory");
			return NULL;
		}
		if (bind_heap(b, heap) < 0)
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
	/* The lists may be inconsistent, so they are not changed. */
	pthread_mutex_init(&lock, NULL);
	thread_last = bindings = NULL;
	if (has_key)
		pthread_setspecific(key, NULL);
}
