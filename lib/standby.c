/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resident -> standby. A place in the view loses its rights before its frame leaves, so that no store is lost.
 * Takes no lock; the caller holds the segment's.
 */
#include "standby.h"

#include "engine.h"

#include <ummap.h>

int standby_retract(struct set *set, size_t i, struct seg *s)
{
	bool writable = seg_has(s, SEG_WRITABLE);
	int err = engine_retract(set->engine, set_view(set, i), frame_home(s->frame), set_view_len(set, i),
				 writable, seg_has(s, SEG_EXPOSED));

	if (err)
		return err;
	frame_set_writable(s->frame, writable);
	add(set->stat.evictions, 1);
	return 0;
}

static void stand(struct set *set, struct seg *s)
{
	seg_change(s, SEG_WRITABLE, SEG_STANDBY);
	if (seg_has(s, SEG_DIRTY))
		cache_stand(&set->member, s, STANDBY_DIRTY);
	else
		cache_stand(&set->member, s,
			    set->advice == UMMAP_ADV_SEQUENTIAL ? STANDBY_FIRST : STANDBY_CLEAN);
}

int standby_enter(struct set *set, size_t i, struct seg *s)
{
	int err = standby_retract(set, i, s);

	if (err)
		standby_put_back(set, s);
	else
		stand(set, s);
	return err;
}

void standby_put_back(struct set *set, struct seg *s)
{
	cache_insert(&set->member, s, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
}
