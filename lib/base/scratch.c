/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes no lock: idle pieces are taken and returned by an exchange of one pointer. */
#include "base/scratch.h"

#include "base/spare.h"
#include "base/sys.h"

#include <stdint.h>
#include <sys/mman.h>

/* So many are kept; more are unmapped when they have been used. */
#define IDLE_MOST 64

/* NULL: no piece here. */
static char *_Atomic idle[IDLE_MOST];

static char *map_piece(void)
{
	size_t guard = sys_page();
	char *p = sys_bare(NULL, guard + SCRATCH_SIZE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p + guard, SCRATCH_SIZE, PROT_READ | PROT_WRITE) < 0) {
		raw_munmap(p, guard + SCRATCH_SIZE);
		return NULL;
	}
	return p + guard;
}

/* Threads begin at different places, and each comes back to its own. */
static unsigned first_place(const void *near)
{
	return (unsigned)((uintptr_t)near >> 12) * 0x9e3779b1u >> 26;
}

_Static_assert(IDLE_MOST == 1 << (32 - 26), "all places are first ones");

char *scratch_take(const void *near)
{
	unsigned first = first_place(near);
	char *made;

	for (unsigned k = 0; k < IDLE_MOST; k++) {
		char *_Atomic *place = &idle[(first + k) % IDLE_MOST];
		char *piece = atomic_load_explicit(place, memory_order_relaxed) ? atomic_exchange(place, NULL) : NULL;

		if (piece)
			return piece;
	}
	made = map_piece();
	return made || !spare_give() ? made : map_piece();
}

void scratch_give(const void *near, char *piece)
{
	unsigned first = first_place(near);

	for (unsigned k = 0; k < IDLE_MOST; k++) {
		char *none = NULL;

		if (atomic_compare_exchange_strong(&idle[(first + k) % IDLE_MOST], &none, piece))
			return;
	}
	raw_munmap(piece - sys_page(), sys_page() + SCRATCH_SIZE);
}
