/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes no lock: an exchange of one pointer takes or returns an idle buffer. */
#include "base/scratch.h"

#include "base/spare.h"
#include "base/sys.h"
#include "common/memory_calls.h"

#include <stdint.h>
#include <sys/mman.h>

/* log2 of the numbers of idle buffers; further ones are unmapped after use. Large buffers may keep
 * as much memory as a fault loads at most. */
#define IDLE_SHIFT 6
#define IDLE_LARGE_SHIFT 2

/* Buffers of one kind. */
struct kind {
	size_t size;            /* bytes of a buffer */
	unsigned shift;         /* log2 of the number of slots */
	char *_Atomic *idle;    /* slots for idle buffers; NULL: an empty slot */
	bool has_guards;        /* whether each buffer follows a guard page */
	_Atomic bool has_own;   /* whether buffers with their own mappings are kept: stacks, and all
				   buffers if the area could not be mapped */
	_Atomic bool tried;     /* whether a thread maps or has mapped the area */
	char *_Atomic area;     /* one buffer for each slot, in one mapping; NULL: none yet */
};

static char *_Atomic idle_stacks[1 << IDLE_SHIFT], *_Atomic idle_small[1 << IDLE_SHIFT],
	*_Atomic idle_large[1 << IDLE_LARGE_SHIFT];

static struct kind kinds[] = {
	[SCRATCH_STACK] = { .size = SCRATCH_SIZE, .shift = IDLE_SHIFT, .idle = idle_stacks,
			    .has_guards = true, .has_own = true },
	[SCRATCH_SMALL] = { .size = SCRATCH_SIZE, .shift = IDLE_SHIFT, .idle = idle_small },
	[SCRATCH_LARGE] = { .size = SCRATCH_LARGE_SIZE, .shift = IDLE_LARGE_SHIFT,
			    .idle = idle_large },
};

static char *map_memory(size_t guard, size_t size, size_t align)
{
	char *p = sys_reserve(guard + size, align);

	if (!p && spare_release())
		p = sys_reserve(guard + size, align);
	if (!p)
		return NULL;
	if (mprotect(p + guard, size, PROT_READ | PROT_WRITE) < 0) {
		raw_munmap(p, guard + size);
		return NULL;
	}
	return p + guard;
}

/* The n-th slot in which a thread looks for a buffer. In an area, all threads begin at the first
 * slot, so that only as many huge pages are used as threads need at a time. Otherwise, threads
 * begin at different slots, and each thread returns to its own slot. */
static char *_Atomic *nth_slot(const struct kind *kind, const void *near, unsigned n)
{
	unsigned hash = (unsigned)((uintptr_t)near >> 12) * 0x9e3779b1u >> (32 - kind->shift);
	unsigned first = kind->has_own ? hash : 0;

	return &kind->idle[(first + n) % (1u << kind->shift)];
}

/*
 * Maps memory for the area. A forked child does not get it: older kernels copy a whole huge page
 * when a thread stores to a part of it after fork(2), and a direct read to another part, which is
 * in progress, would end in the page of the child.
 */
static char *map_area(size_t size)
{
	char *area = map_memory(0, size, HUGE_PAGE);

	if (area && raw_madvise(area, size, MADV_DONTFORK) < 0) {
		raw_munmap(area, size);
		return NULL;
	}
	if (area)
		raw_madvise(area, size, MADV_HUGEPAGE);
	return area;
}

/* Maps the area, and returns its first buffer. Other threads get buffers of their own meanwhile. */
static char *make_area(struct kind *kind)
{
	char *area;

	if (kind->has_own || atomic_exchange(&kind->tried, true))
		return NULL;
	area = map_area(kind->size << kind->shift);
	if (!area) {
		kind->has_own = true;
		return NULL;
	}
	kind->area = area;
	for (unsigned k = 1; k < 1u << kind->shift; k++)
		kind->idle[k] = area + k * kind->size;
	return area;
}

static char *take_idle(const struct kind *kind, const void *near)
{
	char *buffer;

	for (unsigned k = 0; k < 1u << kind->shift; k++) {
		char *_Atomic *slot = nth_slot(kind, near, k);

		buffer = atomic_load_explicit(slot, memory_order_relaxed);
		if (buffer)
			buffer = atomic_exchange(slot, NULL);
		if (buffer)
			return buffer;
	}
	return NULL;
}

char *scratch_take(enum scratch which, const void *near)
{
	struct kind *kind = &kinds[which];
	char *buffer = take_idle(kind, near);

	if (!buffer)
		buffer = make_area(kind);
	return buffer ? buffer :
			map_memory(kind->has_guards ? sys_page() : 0, kind->size, sys_page());
}

static bool is_in_area(const struct kind *kind, const char *buffer)
{
	const char *area = kind->area;

	return area && buffer >= area && buffer < area + (kind->size << kind->shift);
}

void scratch_give(enum scratch which, const void *near, char *buffer)
{
	const struct kind *kind = &kinds[which];
	size_t guard = kind->has_guards ? sys_page() : 0;

	/* Each buffer of the area has its own slot. In a search for an empty slot, other threads
	 * could fill each slot just before it is looked at. */
	if (is_in_area(kind, buffer)) {
		kind->idle[(size_t)(buffer - kind->area) / kind->size] = buffer;
		return;
	}
	for (unsigned k = 0; k < 1u << kind->shift && kind->has_own; k++) {
		char *none = NULL;

		if (atomic_compare_exchange_strong(nth_slot(kind, near, k), &none, buffer))
			return;
	}
	raw_munmap(buffer - guard, guard + kind->size);
}

void scratch_unlock(void)
{
	for (struct kind *kind = kinds; kind < kinds + sizeof(kinds) / sizeof(*kinds); kind++) {
		if (!kind->area)
			continue;
		sys_unlock(kind->area, kind->size << kind->shift);
		for (unsigned k = 0; k < 1u << kind->shift; k++) {
			char *buffer = atomic_exchange(&kind->idle[k], NULL);

			if (!buffer)
				continue;
			sys_discard_pages(buffer, kind->size);
			kind->idle[k] = buffer;
		}
	}
}

void scratch_forget(void)
{
	for (struct kind *kind = kinds; kind < kinds + sizeof(kinds) / sizeof(*kinds); kind++) {
		/* Buffers with their own mappings are memory of the child, too. */
		if (kind->has_own)
			continue;
		for (unsigned k = 0; k < 1u << kind->shift; k++)
			kind->idle[k] = NULL;
		kind->area = NULL;
		kind->tried = false;
	}
}
