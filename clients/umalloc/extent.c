/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the extents of the arenas come from, and what happens to the memory of those that are free. The heap gives out its
 * addresses once, from base on, and takes none back; an arena that does not need an extent decommits it, and commits the part
 * that it uses again. Extents are pages, and segments are larger: so a bit for each page says whether it is dead, and a
 * segment all of whose pages are dead is discarded, whichever extents they belong to. What is committed has to read as zeros
 * if all of it was decommitted, as jemalloc takes for granted: pages whose segment was never discarded are cleared.
 *
 * These run under locks of jemalloc's. Under heap->lock only the library's calls are made, so that nobody commits pages of a
 * segment while it is discarded.
 */
#include "umalloc/extent.h"

#include "umalloc/error.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <ummap.h>

/* What waits to be written is tried in parts: so many of a heap, of so many segments at least. */
#define PARTS 256
#define SEGMENTS 4
/* Storage that has refused that is not asked again for so long. */
#define REFUSED_MS 100

static struct umalloc_heap *heap_of(extent_hooks_t *hooks)
{
	return (struct umalloc_heap *)((char *)hooks - offsetof(struct umalloc_heap, hooks));
}

/* ---- Bits of pages. ---- */

/* They change under the lock only; whoever has a page may look at its bits without. */
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

static void set_bits(uint64_t *bits, size_t first, size_t last)
{
	for (size_t page = first; page < last;) {
		if (page % 64 == 0 && last - page >= 64) {
			put_word(bits, page, UINT64_MAX);
			page += 64;
		} else {
			put_word(bits, page, word(bits, page) | 1ull << page % 64);
			page++;
		}
	}
}

static void clear_bits(uint64_t *bits, size_t first, size_t last)
{
	for (size_t page = first; page < last;) {
		if (page % 64 == 0 && last - page >= 64) {
			put_word(bits, page, 0);
			page += 64;
		} else {
			put_word(bits, page, word(bits, page) & ~(1ull << page % 64));
			page++;
		}
	}
}

static bool all_set(const uint64_t *bits, size_t first, size_t last)
{
	for (size_t page = first; page < last;) {
		if (page % 64 == 0 && last - page >= 64) {
			if (word(bits, page) != UINT64_MAX)
				return false;
			page += 64;
		} else if (has_bit(bits, page)) {
			page++;
		} else {
			return false;
		}
	}
	return true;
}

/* ---- Growing. ---- */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Part by part, until one is refused, with the error: all that waits may be much, and a program may ask for memory again and again. */
static int write_what_waits(const struct umalloc_heap *heap)
{
	size_t part = heap->used / PARTS > SEGMENTS * heap->seg_size ? heap->used / PARTS : SEGMENTS * heap->seg_size;

	for (size_t at = 0; at < heap->used; at += part) {
		size_t len = part < heap->used - at ? part : heap->used - at;

		/* The first also tells an error of before. */
		if (umsync_range(heap->base + at, len, UMMAP_NOFLUSH) < 0 && umsync_range(heap->base + at, len, UMMAP_NOFLUSH) < 0)
			return errno;
	}
	return 0;
}

/* Whether storage takes what leaves memory. Where it has refused a write since the last time, all writes that wait are tried: a
 * heap that grew nevertheless would do so in memory, beyond its budget. */
static bool takes_writes(struct umalloc_heap *heap)
{
	struct umstat st = { .struct_size = sizeof(st) };
	const char *why;

	if (umstat(heap->base, &st) < 0 || st.write_errors == heap->failed)
		return true;
	/* Each arena is asked in turn, and a program that does without asks again. */
	if (heap->refused && now_ms() - heap->refused_at < REFUSED_MS) {
		why = strerror(heap->refused);
	} else {
		heap->refused = write_what_waits(heap);
		heap->refused_at = now_ms();
		why = umerrormsg();
	}
	if (heap->refused) {
		heap_fail(heap->refused, "cannot grow the heap: writing dirty segments to its "
			  "store fails: %s", why);
		return false;
	}
	heap->failed = st.write_errors;
	return true;
}

static void *grow(struct umalloc_heap *heap, void *wanted, size_t size, size_t alignment)
{
	size_t at = heap->used, gap = -((uintptr_t)heap->base + at) & (alignment - 1);

	if (wanted && wanted != heap->base + at)
		return NULL;
	if (gap > heap->size - at || size > heap->size - at - gap) {
		heap_fail(ENOMEM, "cannot grow the heap: of its %zu bytes, %zu are in use or lie "
			  "in gaps between allocations. Try a larger size in umalloc_create()",
			  heap->size, at);
		return NULL;
	}
	if (!takes_writes(heap))
		return NULL;
	heap->used = at + gap + size;
	return heap->base + at + gap;
}

static void *alloc_hook(extent_hooks_t *hooks, void *wanted, size_t size, size_t alignment, bool *zero, bool *commit,
			unsigned arena)
{
	struct umalloc_heap *heap = heap_of(hooks);
	char *memory;

	(void)arena;
	pthread_mutex_lock(&heap->lock);
	memory = grow(heap, wanted, size, alignment);
	/* As if it had been decommitted, so that it can become one with what has. */
	if (memory && !*commit) {
		size_t first = (size_t)(memory - heap->base) / heap->page, last = first + size / heap->page;

		set_bits(heap->dead, first, last);
		set_bits(heap->zero, first, last);
		heap->dead_pages += last - first;
	}
	pthread_mutex_unlock(&heap->lock);
	if (memory)
		*zero = true;
	return memory;
}

/* The addresses stay the arena's. */
static bool dalloc_hook(extent_hooks_t *hooks, void *memory, size_t size, bool committed, unsigned arena)
{
	(void)hooks, (void)memory, (void)size, (void)committed, (void)arena;
	return true;
}

/* ---- Giving up, and using again. ---- */

/* The segments of [first, last), bytes of the heap at which segments begin. false: not all of them, because one is pinned. */
static bool discard(struct umalloc_heap *heap, size_t first, size_t last)
{
	if (umadvise(heap->base + first, last - first, UMMAP_ADV_DISCARD) < 0)
		return false;
	heap->discarded += last - first;
	return true;
}

/* A run of segments at a time, of those that the pages touch. */
static void discard_dead(struct umalloc_heap *heap, size_t first, size_t last)
{
	size_t each = heap->seg_size / heap->page, end;

	last = (last + each - 1) / each * each;
	for (size_t page = first / each * each; page < last; page = end) {
		for (end = page; end < last && all_set(heap->dead, end, end + each); end += each)
			;
		if (end > page && discard(heap, page * heap->page, end * heap->page))
			set_bits(heap->zero, page, end);
		end = end > page ? end : page + each;
	}
}

static bool decommit_hook(extent_hooks_t *hooks, void *memory, size_t size, size_t offset, size_t length, unsigned arena)
{
	struct umalloc_heap *heap = heap_of(hooks);
	size_t first = ((size_t)((char *)memory - heap->base) + offset) / heap->page, last = first + length / heap->page;

	(void)size, (void)arena;
	if (heap->ending || heap->forked)
		return true;
	pthread_mutex_lock(&heap->lock);
	set_bits(heap->dead, first, last);
	heap->dead_pages += last - first;
	discard_dead(heap, first, last);
	pthread_mutex_unlock(&heap->lock);
	return false;
}

static bool commit_hook(extent_hooks_t *hooks, void *memory, size_t size, size_t offset, size_t length, unsigned arena)
{
	struct umalloc_heap *heap = heap_of(hooks);
	size_t first = ((size_t)((char *)memory - heap->base) + offset) / heap->page, last = first + length / heap->page;

	(void)size, (void)arena;
	if (heap->ending || heap->forked)
		return true;
	/* They are this extent's, and nobody else looks at them: what has to be cleared is, when they are not dead any more. */
	pthread_mutex_lock(&heap->lock);
	clear_bits(heap->dead, first, last);
	heap->dead_pages -= last - first;
	pthread_mutex_unlock(&heap->lock);
	for (size_t page = first; page < last; page++) {
		if (!has_bit(heap->zero, page))
			memset(heap->base + page * heap->page, 0, heap->page);
	}
	pthread_mutex_lock(&heap->lock);
	clear_bits(heap->zero, first, last);
	pthread_mutex_unlock(&heap->lock);
	return false;
}

static bool split_hook(extent_hooks_t *hooks, void *memory, size_t size, size_t size_a, size_t size_b, bool committed,
		       unsigned arena)
{
	(void)hooks, (void)memory, (void)size, (void)size_a, (void)size_b, (void)committed, (void)arena;
	return false;
}

static bool merge_hook(extent_hooks_t *hooks, void *a, size_t size_a, void *b, size_t size_b, bool committed, unsigned arena)
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

void extent_give_up(struct umalloc_heap *heap, void *memory, size_t size)
{
	size_t at = (size_t)((char *)memory - heap->base);
	size_t first = (at + heap->seg_size - 1) / heap->seg_size * heap->seg_size;
	size_t last = (at + size) / heap->seg_size * heap->seg_size;

	/* Nobody else has a page of these segments. */
	if (first < last)
		discard(heap, first, last);
}

/* Those that cannot be discarded are few, and found by halves. */
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
