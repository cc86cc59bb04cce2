/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes no lock: an exchange of one pointer takes or returns an idle buffer. */
#include "base/scratch.h"

#include "base/spare.h"
#include "base/sys.h"

#include <stdint.h>
#include <sys/mman.h>

/* Further idle buffers are unmapped after use. */
#define MAX_IDLE_BUFFERS 64

static char *_Atomic idle[MAX_IDLE_BUFFERS]; /* NULL: an empty slot */

static char *map_buffer(void)
{
	size_t guard = sys_page(), len = guard + SCRATCH_SIZE;
	char *p = sys_map_inaccessible(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				       0);

	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p + guard, SCRATCH_SIZE, PROT_READ | PROT_WRITE) < 0) {
		raw_munmap(p, len);
		return NULL;
	}
	return p + guard;
}

/* Threads begin at different slots, and each thread returns to its own slot. */
static unsigned first_slot(const void *near)
{
	return (unsigned)((uintptr_t)near >> 12) * 0x9e3779b1u >> 26;
}

_Static_assert(MAX_IDLE_BUFFERS == 1 << (32 - 26), "first_slot returns any slot");

char *scratch_take(const void *near)
{
	unsigned first = first_slot(near);
	char *buffer;

	for (unsigned k = 0; k < MAX_IDLE_BUFFERS; k++) {
		char *_Atomic *slot = &idle[(first + k) % MAX_IDLE_BUFFERS];

		buffer = atomic_load_explicit(slot, memory_order_relaxed);
		if (buffer)
			buffer = atomic_exchange(slot, NULL);
		if (buffer)
			return buffer;
	}
	buffer = map_buffer();
	return buffer || !spare_release() ? buffer : map_buffer();
}

void scratch_give(const void *near, char *buffer)
{
	unsigned first = first_slot(near);

	for (unsigned k = 0; k < MAX_IDLE_BUFFERS; k++) {
		char *none = NULL;

		if (atomic_compare_exchange_strong(&idle[(first + k) % MAX_IDLE_BUFFERS], &none,
						   buffer))
			return;
	}
	raw_munmap(buffer - sys_page(), sys_page() + SCRATCH_SIZE);
}
