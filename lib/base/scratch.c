/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes no lock: an exchange of one pointer takes or returns an idle buffer. */
#include "base/scratch.h"

#include "base/spare.h"
#include "base/sys.h"

#include <stdint.h>
#include <sys/mman.h>

/* log2 of the numbers of idle buffers; further ones are unmapped after use. A large buffer may keep
 * as much memory as a fault loads at most. */
#define IDLE_SHIFT 6
#define IDLE_LARGE_SHIFT 2

/* Slots for idle buffers; NULL: an empty slot. */
static char *_Atomic idle[1 << IDLE_SHIFT], *_Atomic idle_large[1 << IDLE_LARGE_SHIFT];

/* Buffers of one size. */
struct kind {
	size_t size;            /* bytes of a buffer */
	unsigned shift;         /* log2 of the number of slots */
	char *_Atomic *idle;    /* slots */
};

static const struct kind small = { SCRATCH_SIZE, IDLE_SHIFT, idle };
static const struct kind large = { SCRATCH_LARGE_SIZE, IDLE_LARGE_SHIFT, idle_large };

static char *map_buffer(size_t size)
{
	size_t guard = sys_page(), len = guard + size;
	char *p = sys_map_inaccessible(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				       0);

	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p + guard, size, PROT_READ | PROT_WRITE) < 0) {
		raw_munmap(p, len);
		return NULL;
	}
	return p + guard;
}

/* Threads begin at different slots, and each thread returns to its own slot. */
static char *_Atomic *nth_slot(const struct kind *kind, const void *near, unsigned n)
{
	unsigned first = (unsigned)((uintptr_t)near >> 12) * 0x9e3779b1u >> (32 - kind->shift);

	return &kind->idle[(first + n) % (1u << kind->shift)];
}

static const struct kind *find_kind(size_t size)
{
	return size <= SCRATCH_SIZE ? &small : &large;
}

char *scratch_take(size_t size, const void *near)
{
	const struct kind *kind = find_kind(size);
	char *buffer;

	for (unsigned k = 0; k < 1u << kind->shift; k++) {
		char *_Atomic *slot = nth_slot(kind, near, k);

		buffer = atomic_load_explicit(slot, memory_order_relaxed);
		if (buffer)
			buffer = atomic_exchange(slot, NULL);
		if (buffer)
			return buffer;
	}
	buffer = map_buffer(kind->size);
	return buffer || !spare_release() ? buffer : map_buffer(kind->size);
}

void scratch_give(size_t size, const void *near, char *buffer)
{
	const struct kind *kind = find_kind(size);

	for (unsigned k = 0; k < 1u << kind->shift; k++) {
		char *none = NULL;

		if (atomic_compare_exchange_strong(nth_slot(kind, near, k), &none, buffer))
			return;
	}
	raw_munmap(buffer - sys_page(), sys_page() + kind->size);
}
