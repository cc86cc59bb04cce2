/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The segments of a mapping that ends go, changes included: in few calls, and with frames left for whoever comes next.
 * Nobody else uses the set, and no fault on another mapping finds its segments; what jobs still hold is waited for.
 */
#include "ending.h"

#include "budget.h"
#include "evict.h"
#include "lend.h"
#include "mode.h"
#include "refuse.h"

#define STRETCH 256 /* segments that leave their places at a time */

static int discard_one(struct set *set, size_t i, struct seg *s)
{
	(void)s;
	return engine_discard(set->engine, set_view(set, i), set_view_len(set, i));
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

/* The frame stays in the pool, for whoever comes next, if budget and mode allow it. What is pinned may still be in the
 * hands of somebody outside, and must not become another mapping's. */
static int keep_frame(struct set *set, size_t i, struct seg *s)
{
	if (seg_pins(s) || mode_yields() || frame_held() > budget_bytes())
		return 0;
	if (!seg_has(s, SEG_STANDBY)) {
		set_await(set, s);
		if (engine_leave(set->engine, set_view(set, i), frame_home(s->frame), set_view_len(set, i)) < 0)
			return 0;
		frame_set_writable(s->frame, seg_has(s, SEG_WRITABLE));
	}
	/* Free frames that have different rights would be a mapping each. */
	if (frame_make_writable(s->frame, 1) == 0)
		forget(set, s, frame_give);
	return 0;
}

/* In stretches, for whoever waits for places. */
static void keep_frames(struct set *set, size_t first)
{
	size_t pages = round_up(set->size, sys_page()), end;

	for (size_t i = set_next(set, set->touched, first); i < set->segs; i = set_next(set, set->touched, end)) {
		end = min_size(i + STRETCH, set->segs);
		engine_hold_places();
		set_for_valid(set, i, end, keep_frame);
		if (set->engine == ENGINE_SEGV)
			engine_discard(set->engine, set_view(set, i), min_size(end << set->shift, pages) - (i << set->shift));
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

	refuse_forgive(set, true);
	keep_frames(set, first);
	/* In one call, for as many mappings as there are; if that fails, perhaps one by one. */
	if (first < set->segs &&
	    engine_discard(set->engine, set->view + from, round_up(set->size, sys_page()) - from) < 0) {
		lend_recall(set, first, set->segs);
		set_for_valid(set, first, set->segs, discard_one);
	}
	set_for_valid(set, first, set->segs, drop_frame);
}
