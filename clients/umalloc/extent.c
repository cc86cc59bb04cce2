/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap gives its addresses to arenas once, from base on, and takes none back. An arena
 * decommits an extent that it does not need, and commits the part that it uses again. Extents
 * consist of pages, which are smaller than segments. A bit for each page therefore records that the
 * page is dead, and a segment is discarded when all of its pages are dead, whichever extents they
 * belong to. jemalloc requires that committed memory reads as zeros if all of it was decommitted,
 * so pages whose segment was never discarded are cleared.
 *
 * jemalloc calls these functions under its locks. Under heap->lock only the library is called, so
 * that no thread commits pages of a segment while it is discarded.
 */
#include "umalloc/extent.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <ummap.h>

/* Dirty segments are written in this many parts of the heap, of at least MIN_PART_SEGMENTS. */
#define WRITE_PARTS 256
#define MIN_PART_SEGMENTS 4
/* Time until a store that has refused to write is asked again. */
#define REFUSED_MS 100

static struct umalloc_heap *heap_of(extent_hooks_t *hooks)
{
	return (struct umalloc_heap *)((char *)hooks - offsetof(struct umalloc_heap, hooks));
}

/* ---- Bits of pages ---- */

/* Bits change under the lock only. The owner of a page may read its bits without it. */
static uint64_t word(const uint64_t *bits, size_t page)
{
	return __atomic_load_n(&bits[page / 64], __ATOMIC_RELAXED);
}

static void put_word(uint64_t *bits, size_t page, uint64_t value)
{
	__atomic_store_n(&bits[page / 64], value, __ATOMIC_RELAXED);
}

static bool has_bit(const uint64_t *bits, size_t page)
{
	return word(bits, page) >> page % 64 & 1;
}

static void put_bits(uint64_t *bits, size_t first, size_t last, bool value)
{
	for (size_t page = first; page < last;) {
		bool is_whole = page % 64 == 0 && last - page >= 64;
		uint64_t mask = is_whole ? UINT64_MAX : 1ull << page % 64;

		put_word(bits, page, value ? word(bits, page) | mask : word(bits, page) & ~mask);
		page += is_whole ? 64 : 1;
	}
}

static bool all_set(const uint64_t *bits, size_t first, size_t last)
{
	for (size_t page = first; page < last;) {
		bool is_whole = page % 64 == 0 && last - page >= 64;

		if (is_whole ? word(bits, page) != UINT64_MAX : !has_bit(bits, page))
			return false;
		page += is_whole ? 64 : 1;
	}
	return true;
}

/* ---- Growth ---- */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Writes one part after another until the store refuses one, because a program may ask for memory
 * again and again. Returns 0 or an error number. */
static int write_dirty_segments(const struct umalloc_heap *heap)
{
	size_t part = heap->used / WRITE_PARTS;

	if (part < MIN_PART_SEGMENTS * heap->seg_size)
		part = MIN_PART_SEGMENTS * heap->seg_size;
	for (size_t at = 0; at < heap->used; at += part) {
		size_t len = part < heap->used - at ? part : heap->used - at;

		/* The first call also returns an earlier error. */
		if (umsync_range(heap->base + at, len, UMMAP_NOFLUSH) < 0 &&
		    umsync_range(heap->base + at, len, UMMAP_NOFLUSH) < 0)
			return errno;
	}
	return 0;
}

/* Whether the store accepts writes. If it has refused one since the heap last grew, all dirty
 * segments are written first: a heap that grew nevertheless would exceed its budget. */
static bool can_write(struct umalloc_heap *heap)
{
	struct umstat st = { .struct_size = sizeof(st) };
	const char *why;

	if (umstat(heap->base, &st) < 0 || st.write_errors == heap->write_errors)
		return true;
	/* Each arena asks in turn, and a program that can do without the memory asks again. */
	if (heap->refused_errno && now_ms() - heap->refused_ms < REFUSED_MS) {
		why = strerror(heap->refused_errno);
	} else {
		heap->refused_errno = write_dirty_segments(heap);
		heap->refused_ms = now_ms();
		why = umerrormsg();
	}
	if (heap->refused_errno) {
		umseterror(heap->refused_errno, "cannot grow the heap: writing dirty segments to "
			   "its store fails: %s", why);
		return false;
	}
	heap->write_errors = st.write_errors;
	return true;
}

static void *grow(struct umalloc_heap *heap, void *wanted, size_t size, size_t alignment)
{
	size_t at = heap->used, gap = -((uintptr_t)heap->base + at) & (alignment - 1);

	if (wanted && wanted != heap->base + at)
		return NULL;
	if (gap > heap->size - at || size > heap->size - at - gap) {
		umseterror(ENOMEM, "cannot grow the heap: of its %zu bytes, %zu are in use or lie "
			   "in gaps between allocations. Try a larger size in umalloc_create()",
			   heap->size, at);
		return NULL;
	}
	if (!can_write(heap))
		return NULL;
	heap->used = at + gap + size;
	return heap->base + at + gap;
}

static size_t page_of(const struct umalloc_heap *heap, const void *memory)
{
	return (size_t)((const char *)memory - heap->base) / heap->page;
}

static void *alloc_hook(extent_hooks_t *hooks, void *wanted, size_t size, size_t alignment,
			bool *zero, bool *commit, unsigned arena)
{
	struct umalloc_heap *heap = heap_of(hooks);
	char *memory;

	(void)arena;
	pthread_mutex_lock(&heap->lock);
	memory = grow(heap, wanted, size, alignment);
	/* The extent looks decommitted, so that jemalloc can merge it with such extents. */
	if (memory && !*commit) {
		size_t first = page_of(heap, memory), last = first + size / heap->page;

		put_bits(heap->dead, first, last, true);
		put_bits(heap->zero, first, last, true);
		heap->dead_pages += last - first;
	}
	pthread_mutex_unlock(&heap->lock);
	if (memory)
		*zero = true;
	return memory;
}

/* The arena keeps its addresses. */
static bool dalloc_hook(extent_hooks_t *hooks, void *memory, size_t size, bool committed,
			unsigned arena)
{
	(void)hooks, (void)memory, (void)size, (void)committed, (void)arena;
	return true;
}

/* ---- Discarded memory, and its use ---- */

/* Discards the segments of the heap from byte `first` to `last`. Returns false if a segment is
 * pinned, and then may have discarded others. */
static bool discard(struct umalloc_heap *heap, size_t first, size_t last)
{
	if (umadvise(heap->base + first, last - first, UMMAP_ADV_DISCARD) < 0)
		return false;
	heap->discarded += last - first;
	return true;
}

/* Discards each run of segments whose pages are all dead, of those that the pages touch. */
static void discard_dead_locked(struct umalloc_heap *heap, size_t first, size_t last)
{
	size_t each = heap->seg_size / heap->page, end;

	last = (last + each - 1) / each * each;
	for (size_t page = first / each * each; page < last; page = end) {
		for (end = page; end < last && all_set(heap->dead, end, end + each); end += each)
			;
		if (end > page && discard(heap, page * heap->page, end * heap->page))
			put_bits(heap->zero, page, end, true);
		end = end > page ? end : page + each;
	}
}

static bool decommit_hook(extent_hooks_t *hooks, void *memory, size_t size, size_t offset,
			  size_t length, unsigned arena)
{
	struct umalloc_heap *heap = heap_of(hooks);
	size_t first = page_of(heap, (char *)memory + offset), last = first + length / heap->page;

	(void)size, (void)arena;
	if (heap->is_ending || heap->is_parents)
		return true;
	pthread_mutex_lock(&heap->lock);
	put_bits(heap->dead, first, last, true);
	heap->dead_pages += last - first;
	discard_dead_locked(heap, first, last);
	pthread_mutex_unlock(&heap->lock);
	return false;
}

static bool commit_hook(extent_hooks_t *hooks, void *memory, size_t size, size_t offset,
			size_t length, unsigned arena)
{
	struct umalloc_heap *heap = heap_of(hooks);
	size_t first = page_of(heap, (char *)memory + offset), last = first + length / heap->page;

	(void)size, (void)arena;
	if (heap->is_ending || heap->is_parents)
		return true;
	pthread_mutex_lock(&heap->lock);
	put_bits(heap->dead, first, last, false);
	heap->dead_pages -= last - first;
	pthread_mutex_unlock(&heap->lock);
	/* The pages are no longer dead, so no thread discards or uses them meanwhile. */
	for (size_t page = first; page < last; page++) {
		if (!has_bit(heap->zero, page))
			memset(heap->base + page * heap->page, 0, heap->page);
	}
	pthread_mutex_lock(&heap->lock);
	put_bits(heap->zero, first, last, false);
	pthread_mutex_unlock(&heap->lock);
	return false;
}

static bool split_hook(extent_hooks_t *hooks, void *memory, size_t size, size_t size_a,
		       size_t size_b, bool committed, unsigned arena)
{
	(void)hooks, (void)memory, (void)size, (void)size_a, (void)size_b, (void)committed;
	(void)arena;
	return false;
}

static bool merge_hook(extent_hooks_t *hooks, void *a, size_t size_a, void *b, size_t size_b,
		       bool committed, unsigned arena)
{
	(void)hooks, (void)a, (void)size_a, (void)b, (void)size_b, (void)committed, (void)arena;
	return false;
}

const extent_hooks_t extent_hooks = {
	.alloc = alloc_hook,
	.dalloc = dalloc_hook,
	.commit = commit_hook,
	.decommit = decommit_hook,
	.split = split_hook,
	.merge = merge_hook,
};

/* No other allocation has a page of these segments. */
void extent_discard(struct umalloc_heap *heap, void *memory, size_t size)
{
	size_t at = (size_t)((char *)memory - heap->base), seg = heap->seg_size;
	size_t first = (at + seg - 1) & ~(seg - 1), last = (at + size) & ~(seg - 1);

	if (first < last)
		discard(heap, first, last);
}

/* The few segments that cannot be discarded are found by halving the range. */
static void clear(struct umalloc_heap *heap, size_t first, size_t last)
{
	size_t half = first + (last - first) / heap->seg_size / 2 * heap->seg_size;

	if (discard(heap, first, last))
		return;
	if (half == first) {
		memset(heap->base + first, 0, last - first);
		return;
	}
	clear(heap, first, half);
	clear(heap, half, last);
}

void extent_clear(struct umalloc_heap *heap, void *memory, size_t size)
{
	size_t at = (size_t)((char *)memory - heap->base);

	clear(heap, at, (at + size + heap->seg_size - 1) & ~(heap->seg_size - 1));
}
