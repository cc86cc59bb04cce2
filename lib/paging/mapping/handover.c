/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handovers of addresses from a mapping to other pages. Accesses wait until the other pages are
 * mapped. A thread may have faulted before, and find no mapping afterwards. Therefore each end of a
 * handover lets each thread try one access again; an access that has nothing to do with the
 * handover just faults again. One handover at a time, which holds `lock`.
 */
#include "paging/mapping/handover.h"

static _Atomic uint32_t lock, busy, ended;
static _Atomic uintptr_t low, high;

void handover_begin(const struct mapping *map)
{
	futex_lock(&lock);
	low = (uintptr_t)map->range;
	high = low + round_up(map->size, sys_page());
	busy = 1;
}

void handover_end(void)
{
	ended++;
	busy = 0;
	low = high = 0;
	futex_wake(&busy, INT32_MAX);
	futex_unlock(&lock);
}

bool handover_arrived(const void *addr)
{
	static _Thread_local uint32_t seen __attribute__((tls_model("initial-exec")));
	uintptr_t at = (uintptr_t)addr;
	uint32_t now;

	while (busy && at >= low && at < high)
		futex_wait(&busy, 1, 100);
	now = ended;
	if (seen == now)
		return false;
	seen = now;
	return true;
}

void handover_fork_child(void)
{
	lock = busy = 0;
}
