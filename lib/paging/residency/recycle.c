/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fresh memory costs more than the bytes that go into it: the system clears it first. So a run in order drops what is far
 * enough behind it, and goes on in those frames; memory then grows by need, and what others have in use stays. That is
 * wrong where the same is read again while it could still be in memory. A segment that is left behind keeps when that was,
 * by the clock of its account; if it is loaded again before as much came as the budget holds, runs of its mapping leave
 * nothing behind any more until as much has come again without another such load. So of passes over what fits the first
 * one recycles, the second one fills memory, and the third one finds all of it.
 */
#include "paging/residency/recycle.h"

#include "budget/budget.h"

/* Segments of this mapping that the budget holds. */
static uint64_t whole(const struct mapping *map)
{
	return account_budget(map_account(map)) >> map->shift;
}

/* Elsewhere memory that a segment gives up is no frame, and clearing is no part of what a load costs. */
bool recycle_now(const struct mapping *map)
{
	return frames_are_whole(map->frames) && map->residency.advice == UMMAP_ADV_NORMAL &&
	       map_account(map)->arrivals >= map->residency.wanted_until;
}

void recycle_look(struct mapping *map, struct seg *s)
{
	uint64_t now = map_account(map)->arrivals;

	if (!seg_has(s, SEG_LEFT_BEHIND))
		return;
	seg_change(s, SEG_LEFT_BEHIND, 0);
	/* 32 bits of it: what is wanted soon is never taken for what is not. Before it left, as much as stays had come. */
	if ((uint32_t)now - s->frame + (RECYCLE_DISTANCE_BYTES >> map->shift) <= whole(map))
		map->residency.wanted_until = now + whole(map);
}

void recycle_leave(struct mapping *map, struct seg *s)
{
	s->frame = (uint32_t)map_account(map)->arrivals;
	seg_change(s, 0, SEG_LEFT_BEHIND);
}
