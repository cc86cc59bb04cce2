/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that allocate and free, and their statistics. */
#include "umalloc/extent.h"
#include "umalloc/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <umalloc.h>

/* Least segments of an allocation that is discarded at once when it is freed, so that no segment of
 * it is read or written for nothing. */
#define MIN_DISCARD_SEGMENTS 2

/* Other arenas may have kept addresses that the arena of this thread lacks. */
static void *allocate_elsewhere(struct umalloc_heap *heap, struct binding *b, size_t size,
				int flags)
{
	void *memory = NULL;

	for (unsigned k = 1; k < heap->arenas && !memory; k++) {
		long arena = arena_number(heap, (b->arena + k) % heap->arenas);

		if (arena >= 0)
			memory = mallocx(size, MALLOCX_ARENA((unsigned)arena) |
					 MALLOCX_TCACHE_NONE | flags);
	}
	return memory;
}

static void *refuse_size(const struct umalloc_heap *heap, size_t size)
{
	umseterror(ENOMEM, "cannot allocate %zu bytes: a heap of %zu bytes has no free range for "
		  "them. Try a larger size in umalloc_create()", size, heap->size);
	return NULL;
}

/* Called if the thread's arena has no room, and the heap no more addresses for the arena. */
__attribute__((noinline))
static void *allocate_slowly(struct umalloc_heap *heap, struct binding *b, size_t size, int flags)
{
	void *memory;

	if (size > heap->size)
		return refuse_size(heap, size);
	errno = 0;
	memory = allocate_elsewhere(heap, b, size, flags);
	if (memory)
		return memory;
	/* jemalloc merges free extents when they are purged. */
	thread_flush(b);
	arena_control_all(heap, "purge");
	memory = mallocx(size, b->flags | flags);
	if (!memory)
		memory = allocate_elsewhere(heap, b, size, flags);
	/* If the store is the reason, the hook has set the message. */
	if (memory || errno == ENOSPC || errno == EIO || errno == EDQUOT)
		return memory;
	return refuse_size(heap, size);
}

/* A bit records that an allocation is large, so that the size of others is not looked up when they
 * are freed. */
static _Atomic uint64_t *large_word(const struct umalloc_heap *heap, const void *memory,
				    uint64_t *bit)
{
	size_t page = (size_t)((const char *)memory - heap->base) / heap->page;

	*bit = 1ull << page % 64;
	return &heap->large[page / 64];
}

static void note_large(const struct umalloc_heap *heap, const void *memory)
{
	uint64_t bit;
	_Atomic uint64_t *word = large_word(heap, memory, &bit);

	*word |= bit;
}

static bool was_large(const struct umalloc_heap *heap, const void *memory)
{
	uint64_t bit;
	_Atomic uint64_t *word = large_word(heap, memory, &bit);

	if (!(atomic_load_explicit(word, memory_order_relaxed) & bit))
		return false;
	*word &= ~bit;
	return true;
}

/* flags: jemalloc's flags besides those of the binding. */
static inline void *allocate(struct umalloc_heap *heap, size_t size, int flags)
{
	struct binding *b = thread_binding(heap);
	void *memory = NULL;

	if (!b)
		return NULL;
	size += size == 0;
	if (size <= heap->size)
		memory = mallocx(size, b->flags | flags);
	if (__builtin_expect(!memory, 0))
		memory = allocate_slowly(heap, b, size, flags);
	if (memory && size >= MIN_DISCARD_SEGMENTS * heap->seg_size)
		note_large(heap, memory);
	return memory;
}

const char *umalloc_errormsg(void)
{
	return umerrormsg();
}

void *umalloc(umalloc_heap *heap, size_t size)
{
	return allocate(heap, size, 0);
}

void *ucalloc(umalloc_heap *heap, size_t count, size_t size)
{
	size_t all;
	void *memory;

	if (__builtin_mul_overflow(count, size, &all)) {
		umseterror(ENOMEM, "cannot allocate %zu elements of %zu bytes: the product is "
			  "larger than SIZE_MAX", count, size);
		return NULL;
	}
	if (all < MIN_DISCARD_SEGMENTS * heap->seg_size)
		return allocate(heap, all, MALLOCX_ZERO);
	/* Whole segments are discarded, not overwritten. */
	if (all > heap->size)
		return refuse_size(heap, all);
	memory = allocate(heap, (all + heap->seg_size - 1) & ~(heap->seg_size - 1),
			  MALLOCX_LG_ALIGN(__builtin_ctzl(heap->seg_size)));
	if (memory)
		extent_clear(heap, memory, all);
	return memory;
}

void *ualigned_alloc(umalloc_heap *heap, size_t alignment, size_t size)
{
	if (alignment == 0 || alignment & (alignment - 1)) {
		umseterror(EINVAL, "cannot allocate with an alignment of %zu: it must be a power "
			   "of two", alignment);
		return NULL;
	}
	if (alignment > heap->size)
		return refuse_size(heap, size);
	return allocate(heap, size, MALLOCX_LG_ALIGN(__builtin_ctzl(alignment)));
}

/* An address outside of the heap is a bug, which ends the program as in malloc(3). */
static void check_address(const struct umalloc_heap *heap, const void *memory, const char *call)
{
	if ((uintptr_t)memory - (uintptr_t)heap->base < heap->size)
		return;
	fprintf(stderr, "%s: cannot use the pointer %p: it is not an allocation of this heap\n",
		call, memory);
	abort();
}

static void free_memory(struct umalloc_heap *heap, struct binding *b, void *memory)
{
	if (was_large(heap, memory))
		extent_discard(heap, memory, sallocx(memory, 0));
	dallocx(memory, b->free_flags);
	b->free_flags = b->cache_flags;
}

void ufree(umalloc_heap *heap, void *memory)
{
	struct binding *b;
	int error;

	if (!memory)
		return;
	check_address(heap, memory, "ufree");
	error = errno;
	b = thread_binding(heap);
	if (b)
		free_memory(heap, b, memory);
	errno = error;
}

/* Copies an allocation that cannot be resized in place. */
static void *move_allocation(struct umalloc_heap *heap, struct binding *b, void *old, size_t size)
{
	size_t had = sallocx(old, 0);
	void *memory = allocate(heap, size, 0);

	if (!memory)
		return NULL;
	memcpy(memory, old, had < size ? had : size);
	free_memory(heap, b, old);
	return memory;
}

void *urealloc(umalloc_heap *heap, void *old, size_t size)
{
	struct binding *b;
	void *memory;
	size_t has;

	if (!old)
		return umalloc(heap, size);
	check_address(heap, old, "urealloc");
	b = thread_binding(heap);
	if (!b)
		return NULL;
	size += size == 0;
	has = size <= heap->size ? xallocx(old, size, 0, b->flags) : 0;
	if (has >= MIN_DISCARD_SEGMENTS * heap->seg_size)
		note_large(heap, old);
	if (has >= size && has == nallocx(size, 0))
		return old;
	memory = move_allocation(heap, b, old, size);
	/* The allocation may stay larger than necessary. */
	return !memory && has >= size ? old : memory;
}

size_t umalloc_usable_size(umalloc_heap *heap, const void *memory)
{
	if (!memory)
		return 0;
	check_address(heap, memory, "umalloc_usable_size");
	return sallocx(memory, 0);
}

static uint64_t read_number(const char *format, unsigned arena)
{
	size_t number = 0, len = sizeof(number);
	char name[64];

	snprintf(name, sizeof(name), format, arena);
	return mallctl(name, &number, &len, NULL, 0) ? 0 : number;
}

int umalloc_stats(umalloc_heap *heap, struct umalloc_stats *stats)
{
	struct umalloc_stats now = { .base = heap->base, .size = heap->size,
				     .discarded = heap->discarded };
	uint64_t epoch = 1;

	if (!stats || stats->struct_size < sizeof(stats->struct_size) ||
	    stats->struct_size > sizeof(now))
		return umseterror(EINVAL, "cannot return statistics: stats is NULL, or "
				 "stats->struct_size is not sizeof(struct umalloc_stats)");
	mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
	for (unsigned k = 0; k < heap->arenas; k++) {
		if (heap->arena[k] == NO_ARENA)
			continue;
		now.allocated += read_number("stats.arenas.%u.small.allocated", heap->arena[k]);
		now.allocated += read_number("stats.arenas.%u.large.allocated", heap->arena[k]);
	}
	pthread_mutex_lock(&heap->lock);
	now.used = heap->used;
	now.free = heap->dead_pages * heap->page;
	pthread_mutex_unlock(&heap->lock);
	now.struct_size = stats->struct_size;
	memcpy(stats, &now, stats->struct_size);
	return 0;
}
