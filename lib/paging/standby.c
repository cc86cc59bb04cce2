/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resident -> standby. A place in the view loses its rights before its frame leaves, so that no store is lost.
 * Takes no lock; the caller holds the segment's.
 */
#include "paging/standby.h"

#include "engine/engine.h"

#include <ummap.h>

int standby_retract(struct set *set, size_t i, struct seg **list, unsigned n)
{
	bool writable = seg_has(list[0], SEG_WRITABLE);
	size_t len = set_views_len(set, i, n);
	int err = n == 1 || set->engine->is_one(set_view(set, i), len) ? 0 : -EFAULT;

	if (!err)
		err = set->engine->unmap(set_view(set, i), frame_home(list[0]->frame), len, writable,
				     seg_has(list[0], SEG_EXPOSED));
	if (err)
		return err;
	frame_set_writable(list[0]->frame, n, writable);
	add(set->stat.evictions, n);
	return 0;
}

/* For those that are not changed. */
static enum standby place(const struct set *set)
{
	return set->advice == UMMAP_ADV_SEQUENTIAL ? STANDBY_FIRST : STANDBY_CLEAN;
}

int standby_enter(struct set *set, size_t i, struct seg *s)
{
	int err = standby_retract(set, i, &s, 1);

	if (err) {
		standby_put_back(set, s);
		return err;
	}
	seg_change(s, SEG_WRITABLE, SEG_STANDBY);
	cache_stand(&set->member, s, seg_has(s, SEG_DIRTY) ? STANDBY_DIRTY : place(set));
	return 0;
}

int standby_enter_together(struct set *set, size_t i, struct seg **list, unsigned n)
{
	int err = standby_retract(set, i, list, n);

	if (err)
		return err;
	for (unsigned k = 0; k < n; k++)
		seg_change(list[k], 0, SEG_STANDBY);
	cache_stand_all(&set->member, list, n, place(set));
	return 0;
}

void standby_put_back(struct set *set, struct seg *s)
{
	cache_insert(&set->member, s, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
}
