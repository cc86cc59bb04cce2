/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drops the segments of a mapping that ends, changes included. Few calls of the kernel do that, and
 * frames with memory are kept for the next mapping. The mapping has no other user, and faults on
 * other mappings do not find its segments. Waits for segments that jobs have locked.
 */
#include "paging/mapping/teardown.h"

#include "budget/budget.h"
#include "paging/residency/evict.h"
#include "paging/residency/pagecache.h"
#include "budget/share.h"
#include "paging/fault/fault.h"

static int empty_slot(struct mapping *map, size_t i, struct seg *s)
{
	(void)s;
	return map->engine->discard(map_slot(map, i), map_slot_len(map, i));
}

static void drop_segment(struct mapping *map, struct seg *s, void (*free_frame)(uint32_t))
{
	if (seg_pins(s))
		map_count_pin(map, s, false);
	seg_set_pins(s, 0);
	seg_change(s, SEG_DEVICE, 0);
	cache_remove(&map->member, s);
	free_frame(evict_release_frame(map, s));
}

/* Whether segment s can be dropped together with `first`. */
static bool is_like_first(const struct seg *first, const struct seg *s)
{
	const uint64_t bits = SEG_VALID | SEG_INACTIVE | SEG_WRITABLE;

	return (seg_head(s) & bits) == (seg_head(first) & bits) && !seg_pins(s);
}

/* Moves the frames of a cluster to the pool and makes them writable: free frames with different
 * rights would take a VMA each. */
static bool bring_to_pool(struct mapping *map, size_t i, struct seg **list, unsigned n)
{
	if (!seg_has(list[0], SEG_INACTIVE)) {
		for (unsigned k = 0; k < n; k++)
			map_await(map, list[k]);
		if (n > 1 && !map->engine->is_one(map_slot(map, i), map_slots_len(map, i, n)))
			return false;
		if (!map->engine->unmap_last ||
		    map->engine->unmap_last(map_slot(map, i), frame_addr(list[0]->frame),
					    map_slots_len(map, i, n)) < 0)
			return false;
		frame_note_unmapped(list[0]->frame, n, seg_has(list[0], SEG_WRITABLE));
	}
	return frame_make_writable(list[0]->frame, n) == 0;
}

/* Keeps frames in the pool for the next mapping, if the budget allows it. A pinned frame may still
 * be in use outside the library, and must not be given to another mapping. */
static int keep_frames(struct mapping *map, size_t i, struct seg *s)
{
	struct seg *list[MAX_CLUSTER_SEGMENTS] = { s };
	unsigned n;

	if (seg_pins(s) || share_is_dynamic() || !budget_has_room(0, 0))
		return 0;
	n = map_lock_cluster(map, i, list, MAX_CLUSTER_SEGMENTS, is_like_first);
	if (bring_to_pool(map, i, list, n)) {
		for (unsigned k = n; k-- > 0;)
			drop_segment(map, list[k], frame_free);
	}
	map_unlock_cluster(map, i, list, n);
	return 0;
}

/* Keeps frames in batches, because other threads may wait for the addresses. */
static void keep_all(struct mapping *map, size_t first)
{
	size_t pages = round_up(map->size, sys_page()), end;

	for (size_t i = map_next_touched(map, first); i < map->segs;
	     i = map_next_touched(map, end)) {
		end = min_size(round_up(i + 1, TEARDOWN_BATCH_SEGMENTS), map->segs);
		engine_hold_addresses();
		map_for_valid(map, i, end, keep_frames);
		if (map->engine->unmap_last)
			map->engine->discard(map_slot(map, i), min_size(end << map->shift, pages) -
								(i << map->shift));
		engine_release_addresses();
	}
}

/* Drops a segment whose slot is empty. */
static int drop_frame(struct mapping *map, size_t i, struct seg *s)
{
	(void)i;
	drop_segment(map, s, frame_free_to_system);
	return 0;
}

void teardown(struct mapping *map, size_t first)
{
	size_t from = min_size(first << map->shift, map->size);

	fault_unpoison(map, true);
	keep_all(map, first);
	/* One call empties all slots. If it fails, slots are emptied one by one. */
	if (first < map->segs &&
	    map->engine->discard(map->range + from, round_up(map->size, sys_page()) - from) < 0) {
		pagecache_unmap(map, first, map->segs);
		map_for_valid(map, first, map->segs, empty_slot);
	}
	pagecache_forget(map, first);
	map_for_valid(map, first, map->segs, drop_frame);
}
