/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The segments of a mapping that ends go, changes included: in few calls, and with frames left for whoever comes next.
 * Nobody else uses the set, and no fault on another mapping finds its segments; what jobs still hold is waited for.
 */
#include "paging/ending.h"

#include "memory/budget.h"
#include "paging/evict.h"
#include "paging/lend.h"
#include "node/mode.h"
#include "paging/fault.h"

#define STRETCH 256 /* segments that leave their places at a time: whole pieces */

static int discard_one(struct set *set, size_t i, struct seg *s)
{
	(void)s;
	return set->engine->discard(set_view(set, i), set_view_len(set, i));
}

static void forget(struct set *set, struct seg *s, void (*free_frame)(uint32_t))
{
	if (seg_pins(s))
		set_count_pin(set, false);
	seg_set_pins(s, 0);
	seg_change(s, SEG_DEVICE, 0);
	cache_remove(&set->member, s);
	free_frame(evict_let_go(set, s));
}

static bool alike(const struct seg *first, const struct seg *s)
{
	const uint64_t bits = SEG_VALID | SEG_STANDBY | SEG_WRITABLE;

	return (seg_head(s) & bits) == (seg_head(first) & bits) && !seg_pins(s);
}

/* The frames of a piece are at home from then on, and may be written: free ones that have different rights would be a
 * mapping each. */
static bool bring_home(struct set *set, size_t i, struct seg **list, unsigned n)
{
	if (!seg_has(list[0], SEG_STANDBY)) {
		for (unsigned k = 0; k < n; k++)
			set_await(set, list[k]);
		if (n > 1 && !set->engine->is_one(set_view(set, i), set_views_len(set, i, n)))
			return false;
		if (set->engine->unmap_last(set_view(set, i), frame_home(list[0]->frame),
				 set_views_len(set, i, n)) < 0)
			return false;
		frame_set_writable(list[0]->frame, n, seg_has(list[0], SEG_WRITABLE));
	}
	return frame_make_writable(list[0]->frame, n) == 0;
}

/* The frames stay in the pool, for whoever comes next, if budget and mode allow it. What is pinned may still be in the
 * hands of somebody outside, and must not become another mapping's. */
static int keep_frames(struct set *set, size_t i, struct seg *s)
{
	struct seg *list[PIECE_MOST] = { s };
	unsigned n;

	if (seg_pins(s) || mode_yields() || frame_held() > budget_bytes())
		return 0;
	n = set_lock_piece(set, i, list, PIECE_MOST, alike);
	if (bring_home(set, i, list, n)) {
		for (unsigned k = n; k-- > 0;)
			forget(set, list[k], frame_give);
	}
	set_unlock_piece(set, i, list, n);
	return 0;
}

/* In stretches, for whoever waits for places. */
static void keep_all(struct set *set, size_t first)
{
	size_t pages = round_up(set->size, sys_page()), end;

	for (size_t i = set_next(set, set->touched, first); i < set->segs; i = set_next(set, set->touched, end)) {
		end = min_size(round_up(i + 1, STRETCH), set->segs);
		engine_hold_places();
		set_for_valid(set, i, end, keep_frames);
		if (set->engine->vma_each)
			set->engine->discard(set_view(set, i), min_size(end << set->shift, pages) - (i << set->shift));
		engine_release_places();
	}
}

/* Its place in the view is empty. */
static int drop_frame(struct set *set, size_t i, struct seg *s)
{
	(void)i;
	forget(set, s, frame_release);
	return 0;
}

void ending_forget(struct set *set, size_t first)
{
	size_t from = min_size(first << set->shift, set->size);

	fault_unpoison(set, true);
	keep_all(set, first);
	/* In one call, for as many mappings as there are; if that fails, perhaps one by one. */
	if (first < set->segs &&
	    set->engine->discard(set->view + from, round_up(set->size, sys_page()) - from) < 0) {
		lend_recall(set, first, set->segs);
		set_for_valid(set, first, set->segs, discard_one);
	}
	set_for_valid(set, first, set->segs, drop_frame);
}
