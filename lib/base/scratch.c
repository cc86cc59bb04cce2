/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes no lock: idle pieces are taken and returned by an exchange of one pointer. */
#include "base/scratch.h"

#include "base/spare.h"
#include "base/sys.h"

#include <stdint.h>
#include <sys/mman.h>

/* Pieces that are kept, as powers of two; more are unmapped when they have been used. A large piece
 * may have as much memory as a fault loads at most. */
#define MOST_IDLE_SHIFT 6
#define MOST_IDLE_LARGE_SHIFT 2

/* Pieces of one size that are not in use; NULL: there is none at this place. */
static char *_Atomic small[1 << MOST_IDLE_SHIFT], *_Atomic large[1 << MOST_IDLE_LARGE_SHIFT];

static const struct kind {
	size_t size;             /* bytes of a piece */
	unsigned shift;          /* log2 of the number of places */
	char *_Atomic *idle;     /* places */
} smalls = { SCRATCH_SIZE, MOST_IDLE_SHIFT, small },
  larges = { SCRATCH_LARGE, MOST_IDLE_LARGE_SHIFT, large };

static char *map_piece(size_t size)
{
	size_t guard = sys_page();
	char *p = sys_bare(NULL, guard + size, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p + guard, size, PROT_READ | PROT_WRITE) < 0) {
		raw_munmap(p, guard + size);
		return NULL;
	}
	return p + guard;
}

/* Threads begin at different places, and each comes back to its own. */
static char *_Atomic *nth_place(const struct kind *kind, const void *near, unsigned n)
{
	unsigned first = (unsigned)((uintptr_t)near >> 12) * 0x9e3779b1u >> (32 - kind->shift);

	return &kind->idle[(first + n) % (1u << kind->shift)];
}

static char *take(const struct kind *kind, const void *near)
{
	char *made;

	for (unsigned k = 0; k < 1u << kind->shift; k++) {
		char *_Atomic *place = nth_place(kind, near, k);
		char *piece = atomic_load_explicit(place, memory_order_relaxed) ?
				      atomic_exchange(place, NULL) : NULL;

		if (piece)
			return piece;
	}
	made = map_piece(kind->size);
	return made || !spare_give() ? made : map_piece(kind->size);
}

static void give(const struct kind *kind, const void *near, char *piece)
{
	for (unsigned k = 0; k < 1u << kind->shift; k++) {
		char *none = NULL;

		if (atomic_compare_exchange_strong(nth_place(kind, near, k), &none, piece))
			return;
	}
	raw_munmap(piece - sys_page(), sys_page() + kind->size);
}

char *scratch_take(const void *near)
{
	return take(&smalls, near);
}

void scratch_give(const void *near, char *piece)
{
	give(&smalls, near, piece);
}

char *scratch_take_large(const void *near)
{
	return take(&larges, near);
}

void scratch_give_large(const void *near, char *piece)
{
	give(&larges, near, piece);
}
