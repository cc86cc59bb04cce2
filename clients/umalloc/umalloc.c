/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that allocate and free, and what they count. */
#include "umalloc/error.h"
#include "umalloc/extent.h"
#include "umalloc/heap.h"
#include "umalloc/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <umalloc.h>

/* What takes so many segments is given up at once when it is freed: others would be read or written for nothing. */
#define GIVEN_UP 2

/* The others have kept addresses that this thread's arena lacks. */
static void *from_other_arenas(struct umalloc_heap *heap, struct binding *b, size_t size, int flags)
{
	void *memory = NULL;

	for (unsigned k = 1; k < heap->arenas && !memory; k++) {
		long arena = heap_arena(heap, (b->arena + k) % heap->arenas);

		if (arena >= 0)
			memory = mallocx(size, MALLOCX_ARENA((unsigned)arena) | MALLOCX_TCACHE_NONE | flags);
	}
	return memory;
}

static void *refuse(const struct umalloc_heap *heap, size_t size)
{
	heap_fail(ENOMEM, "cannot allocate %zu bytes: a heap of %zu bytes has no free range for "
		  "them. Try a larger size in umalloc_create()", size, heap->size);
	return NULL;
}

/* Where storage is the reason, the hook has left its sentence. */
static void *explain(const struct umalloc_heap *heap, size_t size)
{
	return errno == ENOSPC || errno == EIO || errno == EDQUOT ? NULL : refuse(heap, size);
}

/* Free extents become one with their neighbours when they are given up. */
static void give_up_all(struct umalloc_heap *heap, struct binding *b)
{
	char name[64];

	thread_flush(b);
	for (unsigned k = 0; k < heap->arenas; k++) {
		if (heap->arena[k] == NO_ARENA)
			continue;
		snprintf(name, sizeof(name), "arena.%u.purge", (unsigned)heap->arena[k]);
		mallctl(name, NULL, NULL, NULL, 0);
	}
}

/* The thread's arena has no place for it, and the heap no more addresses for the arena. */
__attribute__((noinline))
static void *allocate_slowly(struct umalloc_heap *heap, struct binding *b, size_t size, int flags)
{
	void *memory;

	if (size > heap->size)
		return refuse(heap, size);
	errno = 0;
	memory = from_other_arenas(heap, b, size, flags);
	if (memory)
		return memory;
	give_up_all(heap, b);
	memory = mallocx(size, b->flags | flags);
	if (!memory)
		memory = from_other_arenas(heap, b, size, flags);
	return memory ? memory : explain(heap, size);
}

/* Which allocations are large is noted, so that the others need not be asked for their size when they are freed. */
static _Atomic uint64_t *large_word(const struct umalloc_heap *heap, const void *memory, uint64_t *bit)
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

/* flags: of jemalloc, besides those of the binding. */
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
	if (memory && size >= GIVEN_UP * heap->seg_size)
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
		heap_fail(ENOMEM, "cannot allocate %zu elements of %zu bytes: the product is "
			  "larger than SIZE_MAX", count, size);
		return NULL;
	}
	if (all < GIVEN_UP * heap->seg_size)
		return allocate(heap, all, MALLOCX_ZERO);
	/* Of whole segments, what was there before need not be overwritten. */
	memory = all <= heap->size ? allocate(heap, (all + heap->seg_size - 1) & ~(heap->seg_size - 1),
					      MALLOCX_LG_ALIGN(__builtin_ctzl(heap->seg_size))) : refuse(heap, all);
	if (memory)
		extent_clear(heap, memory, all);
	return memory;
}

void *ualigned_alloc(umalloc_heap *heap, size_t alignment, size_t size)
{
	if (alignment == 0 || alignment & (alignment - 1)) {
		heap_fail(EINVAL, "cannot allocate with an alignment of %zu: it must be a power of "
			  "two", alignment);
		return NULL;
	}
	if (alignment > heap->size)
		return refuse(heap, size);
	return allocate(heap, size, MALLOCX_LG_ALIGN(__builtin_ctzl(alignment)));
}

/* Not an allocation of the heap: as malloc's, this is a bug that must not go on. */
static void check_mine(const struct umalloc_heap *heap, const void *memory, const char *call)
{
	if ((uintptr_t)memory - (uintptr_t)heap->base < heap->size)
		return;
	fprintf(stderr, "%s: cannot use the pointer %p: it is not an allocation of this heap\n",
		call, memory);
	abort();
}

static void free_in(struct umalloc_heap *heap, struct binding *b, void *memory)
{
	if (was_large(heap, memory))
		extent_give_up(heap, memory, sallocx(memory, 0));
	dallocx(memory, b->free_flags);
	b->free_flags = b->cache_flags;
}

void ufree(umalloc_heap *heap, void *memory)
{
	struct binding *b;
	int error;

	if (!memory)
		return;
	check_mine(heap, memory, "ufree");
	error = errno;
	b = thread_binding(heap);
	if (b)
		free_in(heap, b, memory);
	errno = error;
}

/* Where it cannot stay, it is copied. */
static void *move(struct umalloc_heap *heap, struct binding *b, void *old, size_t size)
{
	size_t had = sallocx(old, 0);
	void *memory = allocate(heap, size, 0);

	if (!memory)
		return NULL;
	memcpy(memory, old, had < size ? had : size);
	free_in(heap, b, old);
	return memory;
}

void *urealloc(umalloc_heap *heap, void *old, size_t size)
{
	struct binding *b;
	void *memory;
	size_t has;

	if (!old)
		return umalloc(heap, size);
	check_mine(heap, old, "urealloc");
	b = thread_binding(heap);
	if (!b)
		return NULL;
	size += size == 0;
	has = size <= heap->size ? xallocx(old, size, 0, b->flags) : 0;
	if (has >= GIVEN_UP * heap->seg_size)
		note_large(heap, old);
	if (has >= size && has == nallocx(size, 0))
		return old;
	memory = move(heap, b, old, size);
	/* It may also stay larger than it has to be. */
	return !memory && has >= size ? old : memory;
}

size_t umalloc_usable_size(umalloc_heap *heap, const void *memory)
{
	if (!memory)
		return 0;
	check_mine(heap, memory, "umalloc_usable_size");
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
	struct umalloc_stats now = { .base = heap->base, .size = heap->size, .discarded = heap->discarded };
	uint64_t epoch = 1;

	if (!stats || stats->struct_size < sizeof(stats->struct_size) || stats->struct_size > sizeof(now))
		return heap_fail(EINVAL, "cannot return statistics: stats is NULL, or "
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
