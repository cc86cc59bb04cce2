/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creation and end of heaps. The library starts before jemalloc, so fork(2) takes the locks of
 * jemalloc first, as the hooks do, which call the library under them. `lock` protects the list of
 * heaps, by which a forked child finds them.
 */
#include "umalloc/arena.h"

#include "common/memory_calls.h"
#include "umalloc/extent.h"
#include "umalloc/store.h"
#include "umalloc/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <umalloc.h>

#define DEFAULT_SEGMENT_BYTES ((size_t)256 << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct umalloc_heap *heaps;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* ---- Fork ---- */

/* A heap is linked by one store, so the list is whole. */
static void begin_child(void)
{
	pthread_mutex_init(&lock, NULL);
	thread_forget_all();
	for (struct umalloc_heap *heap = heaps; heap; heap = heap->next) {
		heap->is_parents = true;
		heap->bindings = NULL;
		pthread_mutex_init(&heap->lock, NULL);
		pthread_mutex_init(&heap->arena_lock, NULL);
	}
}

static void register_fork_handler(void)
{
	pthread_atfork(NULL, NULL, begin_child);
}

static void link_heap(struct umalloc_heap *heap)
{
	pthread_mutex_lock(&lock);
	heap->next = heaps;
	atomic_signal_fence(memory_order_seq_cst);
	heaps = heap;
	pthread_mutex_unlock(&lock);
}

static void unlink_heap(struct umalloc_heap *heap)
{
	struct umalloc_heap **at = &heaps;

	pthread_mutex_lock(&lock);
	while (*at != heap)
		at = &(*at)->next;
	*at = heap->next;
	pthread_mutex_unlock(&lock);
}

/* ---- Creation and end ---- */

static int read_attr(struct ummap_attr *own, const struct ummap_attr *attr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	*own = (struct ummap_attr)UMMAP_ATTR_INIT;
	if (attr && attr->struct_size > sizeof(*own))
		return umseterror(EINVAL, "cannot use attr->struct_size %zu: this library knows "
				  "%zu bytes. Try UMMAP_ATTR_INIT", attr->struct_size,
				  sizeof(*own));
	if (attr)
		memcpy(own, attr, attr->struct_size);
	own->struct_size = sizeof(*own);
	own->flags |= UMMAP_CREATE | UMMAP_GROWS | UMMAP_BLANK;
	if (!own->seg_size)
		own->seg_size = DEFAULT_SEGMENT_BYTES;
	if (own->seg_size & (own->seg_size - 1) || own->seg_size < page)
		return umseterror(EINVAL, "cannot use attr->seg_size %zu: it must be a power of "
				  "two of at least %zu bytes, or 0", own->seg_size, page);
	return 0;
}

/* The bitmaps stand one behind the other. */
static size_t bitmap_size(const struct umalloc_heap *heap)
{
	return (heap->size / heap->page + 63) / 64 * sizeof(uint64_t);
}

static int make_bitmaps(struct umalloc_heap *heap)
{
	size_t len = bitmap_size(heap);
	char *bits = mmap(NULL, 3 * len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (bits == MAP_FAILED)
		return umseterror(ENOMEM, "cannot create a heap of %zu bytes: no address space for "
				  "its tables", heap->size);
	heap->dead = (uint64_t *)(void *)bits;
	heap->zero = (uint64_t *)(void *)(bits + len);
	heap->large = (_Atomic uint64_t *)(void *)(bits + 2 * len);
	return 0;
}

/* Ends what set_up has begun, and the mapping. */
static void free_heap(struct umalloc_heap *heap)
{
	if (!heap->is_parents)
		umunmap(heap->base, 0);
	if (heap->dead)
		raw_munmap(heap->dead, 3 * bitmap_size(heap));
	pthread_mutex_destroy(&heap->lock);
	pthread_mutex_destroy(&heap->arena_lock);
	free(heap);
}

/* Called after the store has been mapped, which starts the library. */
static int set_up(struct umalloc_heap *heap)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	pthread_once(&fork_once, register_fork_handler);
	heap->hooks = extent_hooks;
	heap->arenas = processors < 1 ? 1 :
		       processors > MAX_ARENAS ? MAX_ARENAS : (unsigned)processors;
	for (unsigned k = 0; k < heap->arenas; k++)
		heap->arena[k] = NO_ARENA;
	pthread_mutex_init(&heap->lock, NULL);
	pthread_mutex_init(&heap->arena_lock, NULL);
	return make_bitmaps(heap) < 0 || arena_number(heap, 0) < 0 ? -1 : 0;
}

umalloc_heap *umalloc_create(const char *uri, size_t size, const struct ummap_attr *attr)
{
	struct umalloc_heap *heap;
	struct ummap_attr own;
	char why[512];
	void *base;
	int error;

	if (read_attr(&own, attr) < 0)
		return NULL;
	if (size == 0 || size > SIZE_MAX / 2) {
		umseterror(EINVAL, "cannot create a heap of %zu bytes: the size must be at least 1 "
			   "and at most half of the address space", size);
		return NULL;
	}
	heap = calloc(1, sizeof(*heap));
	if (!heap) {
		umseterror(ENOMEM, "cannot create a heap of %zu bytes: no memory", size);
		return NULL;
	}
	heap->page = (size_t)sysconf(_SC_PAGESIZE);
	heap->seg_size = own.seg_size;
	heap->size = (size + own.seg_size - 1) & ~(own.seg_size - 1);
	if (store_map(uri, heap->size, &own, &base) < 0) {
		free(heap);
		return NULL;
	}
	heap->base = base;
	if (set_up(heap) < 0) {
		error = errno;
		snprintf(why, sizeof(why), "%s", umerrormsg());
		free_heap(heap);
		umseterror(error, "%s", why);
		return NULL;
	}
	link_heap(heap);
	return heap;
}

void umalloc_destroy(umalloc_heap *heap)
{
	int error = errno;

	if (!heap)
		return;
	unlink_heap(heap);
	heap->is_ending = true;
	thread_forget_heap(heap);
	arena_control_all(heap, "destroy");
	free_heap(heap);
	errno = error;
}
