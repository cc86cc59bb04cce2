/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is new to the process costs more than the read into it, because the kernel clears
 * it. Therefore, a sequential run drops the segments that are far enough behind it, and continues
 * in their frames, so that the process takes no more memory, and segments in use stay. That is
 * wrong if the program reads the same segments again while they could still be in memory. A
 * segment that is dropped behind a run keeps the time, by the clock of its account. If it is
 * loaded again before as many segments came as the budget holds, runs of its mapping drop nothing
 * until as many have come again without another such load. Of several passes over a file that
 * fits, the first one recycles, the second one fills memory, and the third one finds all of the
 * file there.
 */
#include "paging/residency/recycle.h"

#include "budget/budget.h"

/* Returns how many segments of this mapping the budget holds. */
static uint64_t count_budget_segs(const struct mapping *map)
{
	return account_budget(map_account(map)) >> map->shift;
}

/* If frames do not move as a whole, a dropped segment gives no frame that needs no clearing. */
bool recycle_now(const struct mapping *map)
{
	return frames_are_whole(map->frames) && map->residency.advice == UMMAP_ADV_NORMAL &&
	       map_account(map)->arrivals >= map->residency.wanted_until;
}

void recycle_note_return(struct mapping *map, struct seg *s)
{
	uint64_t now = map_account(map)->arrivals;

	seg_change(s, SEG_LEFT_BEHIND, 0);
	/* The segment has 32 bits of the time: a difference that overflows is taken for a
	 * short one, never the reverse. RECYCLE_DISTANCE_BYTES had come before the segment
	 * was dropped. */
	if ((uint32_t)now - s->frame + (RECYCLE_DISTANCE_BYTES >> map->shift) <=
	    count_budget_segs(map))
		map->residency.wanted_until = now + count_budget_segs(map);
}

void recycle_leave(struct mapping *map, struct seg *s)
{
	s->frame = (uint32_t)map_account(map)->arrivals;
	seg_change(s, 0, SEG_LEFT_BEHIND);
}
