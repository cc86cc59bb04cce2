/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of the segments that came last. Takes no lock: the cache's is held. */
#include "cache/recent.h"

#define RECENT 8

static uint64_t clock;
static struct newcomer {
	const struct seg *seg;
	const struct share *share;
} ring[RECENT];

void recent_add(const struct seg *s, const struct share *share)
{
	ring[clock++ % RECENT] = (struct newcomer){ s, share };
}

uint64_t recent_clock(void)
{
	return clock;
}

bool recent_has(const struct seg *s, const struct share *share, size_t there)
{
	for (uint64_t i = 1; i <= RECENT && i <= clock && there > 1; i++) {
		const struct newcomer *r = &ring[(clock - i) % RECENT];

		if (share && r->share != share)
			continue;
		if (r->seg == s)
			return true;
		there--;
	}
	return false;
}

void recent_forget(void)
{
	for (unsigned i = 0; i < RECENT; i++)
		ring[i].seg = NULL;
}
