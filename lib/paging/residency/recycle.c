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
#include "paging/fault/segment.h"
#include "paging/residency/evict.h"
#include "paging/residency/huge_blocks.h"
#include "paging/residency/tiering.h"

/* Returns how many segments of this mapping the budget and its tiers hold. */
static uint64_t count_budget_segs(const struct mapping *map)
{
	return account_budget_within(map_account(map), tiering_room(map)) >> map->shift;
}

/* If frames do not move as a whole, only a block on a huge page gives memory that needs no
 * clearing. */
bool recycle_is_wanted(const struct mapping *map)
{
	return (frames_are_whole(map->frames) || huge_blocks_come(map)) &&
	       map->residency.advice == UMMAP_ADV_NORMAL &&
	       map_account(map)->arrivals >= map->residency.wanted_until;
}

bool recycle_is_far(const struct mapping *map, const struct stream *r, size_t i)
{
	return r->stride == 1 && i > r->began &&
	       i - r->began >= RECYCLE_DISTANCE_BYTES >> map->shift;
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

/* ---- Dropping ---- */

/* Notes the time in a locked segment that has just become absent. */
static void note_drop(struct mapping *map, struct seg *s)
{
	s->frame = (uint32_t)map_account(map)->arrivals;
	seg_change(s, 0, SEG_LEFT_BEHIND);
}

static bool is_idle(const struct seg *s)
{
	return seg_has(s, SEG_VALID) && !(seg_head(s) & (SEG_INACTIVE | SEG_DIRTY)) && !seg_pins(s);
}

/* Whether segment s can be unmapped together with `first`. */
static bool is_idle_too(const struct seg *first, const struct seg *s)
{
	return is_idle(s) && seg_as_loaded(s) && seg_as_loaded(first);
}

/* Makes n locked segments from segment i on absent, behind a sequential run. */
static void drop_segments(struct mapping *map, size_t i, struct seg **list, unsigned n)
{
	bool gone;

	for (unsigned k = 0; k < n; k++)
		cache_remove(&map->member, list[k]);
	gone = (n > 1 ? seg_unmap(map, i, list, n) : seg_drop(map, i, list[0])) == 0;
	/* The frame of the first segment is the next to be taken: the caches have it. */
	for (unsigned k = n; k-- > 0;) {
		if (!gone) {
			seg_put_back(map, list[k]);
			continue;
		}
		frame_free(evict_release_frame(map, list[k]));
		note_drop(map, list[k]);
	}
}

/* Locks the cluster that begins with list[0], which is locked. Unless `all`, the cluster ends
 * before the first segment of which the policy expects another use. Returns its number of segments,
 * which is 0 if list[0] is such a segment. */
static unsigned lock_unneeded(struct mapping *map, size_t i, struct seg **list, size_t max,
			      bool all)
{
	unsigned n, k = 0;

	if (!all && cache_label(&map->member, list[0]))
		return 0;
	n = map_lock_cluster(map, i, list, max, is_idle_too);
	do
		k++;
	while (k < n && (all || !cache_label(&map->member, list[k])));
	for (; n > k; n--)
		map_unlock(map, i + n - 1, list[n - 1]);
	return n;
}

/* Drops those of `count` segments from `first` on that are clean and not locked; unless `all`, only
 * those of which their policy expects no other use. Returns false if another thread holds the lock
 * of a segment that might be dropped. */
static bool drop_range(struct mapping *map, size_t first, size_t count, bool all)
{
	struct seg *list[MAX_CLUSTER_SEGMENTS];
	size_t end = first + count;
	bool done = true;
	unsigned n;

	for (size_t i = first; i < end; i += n ? n : 1) {
		list[0] = map_seg(map, i);
		n = 0;
		if (!is_idle(list[0]))
			continue;
		if (!seg_trylock(list[0])) {
			done = false;
			continue;
		}
		if (is_idle(list[0]))
			n = lock_unneeded(map, i, list, end - i, all);
		if (n) {
			drop_segments(map, i, list, n);
			map_unlock_cluster(map, i, list, n);
		}
		map_unlock(map, i, list[0]);
	}
	return done;
}

/* Notes a cluster that could not be dropped. If there is no room for it, eviction takes it
 * later. */
static void note_missed(struct mapping *map, size_t first)
{
	for (size_t k = 0; k < MAX_MISSED_CLUSTERS; k++) {
		size_t none = 0;

		if (atomic_compare_exchange_strong(&map->residency.missed[k], &none, first + 1))
			return;
	}
}

/* Tries again to drop the clusters whose locks other threads held: the thread that had served a
 * fault there may have lost its processor for long. */
static void drop_missed(struct mapping *map, size_t cluster, bool all)
{
	for (size_t k = 0; k < MAX_MISSED_CLUSTERS; k++) {
		size_t first = map->residency.missed[k];

		if (!first ||
		    !atomic_compare_exchange_strong(&map->residency.missed[k], &first, 0))
			continue;
		if (first - 1 + cluster <= map->segs &&
		    !drop_range(map, first - 1, cluster, all))
			note_missed(map, first - 1);
	}
}

void recycle_drop_behind(struct mapping *map, size_t i, size_t cluster, bool all)
{
	drop_missed(map, cluster, all);
	i -= i % cluster;
	for (size_t k = FIRST_DROPPED_BEHIND; k <= LAST_DROPPED_BEHIND && k * cluster <= i; k++) {
		if (!drop_range(map, i - k * cluster, cluster, all) && k == LAST_DROPPED_BEHIND)
			note_missed(map, i - k * cluster);
	}
}

void recycle_drop_block(struct mapping *map, size_t first)
{
	struct seg *s = map_seg(map, first);

	if (!evict_drop_block(map, first) || !seg_trylock(s))
		return;
	if (!seg_has(s, SEG_VALID))
		note_drop(map, s);
	map_unlock(map, first, s);
}
