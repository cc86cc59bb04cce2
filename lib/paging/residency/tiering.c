/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Victims are found by a clock over the frames of a tier, whose order is that of loads. The pool
 * records the segment of each frame. The record may be outdated, so the segment is looked up and
 * locked by cache.c, and has to have the frame then. The caller may hold the lock of one segment;
 * the locks of others are only tried.
 *
 * A sample of a clean segment makes it inactive; its next access returns it. A sample of a dirty
 * segment takes the right to store, because inactive dirty segments are written soon; only its
 * next store is noticed.
 */
#include "paging/residency/tiering.h"

#include "base/log.h"
#include "io/plugin.h"
#include "memory/tiers.h"
#include "paging/fault/segment.h"

#include <string.h>
#include <time.h>

static struct {
	_Atomic uint64_t loads, promotions, demotions, hits;
} counts[UMMAP_MAX_TIERS];

/* Returns a time in ms, which is not 0. */
static uint32_t now_ms(void)
{
	return (uint32_t)sys_now() | 1;
}

static int64_t thread_time_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000 + (int64_t)t.tv_nsec / 1000;
}

/* Processor time in us that promotions may still take; negative after a long one. */
static _Atomic int64_t promotion_us = PROMOTION_ROUND_US;

static const struct ummap_tier_policy *policy;

/* Whether segments stay where they were loaded. */
static bool is_static(void)
{
	return !policy->rank;
}

int tiering_start(const char *name)
{
	policy = plugin_tier_policy(name);
	return policy ? 0 : -EINVAL;
}

/* ---- Tiers of a mapping ---- */

/* Other processes map shared frames, which are in an object of their own. Only frames that move as
 * a whole can be pages of a file. */
static int leave_files_out(struct mapping *map, const char *names, const char *reason)
{
	map->tiers &= ~tiers_with_files();
	if (!map->tiers && names)
		return fail(EINVAL, "cannot use the tiers '%.100s' with %s%s: they are files on "
			    "persistent memory. Try other tiers", names,
			    reason ? "" : "the engine ", reason ? reason : map->engine->name);
	map->tiers = map->tiers ? map->tiers : 1u << tier_count;
	return 0;
}

static unsigned fastest_tier(const struct mapping *map)
{
	return (unsigned)__builtin_ctz(map->tiers);
}

/* An instruction may need several segments at a time. In smaller tiers, they would evict each other
 * without end. */
static void ensure_least(const struct mapping *map)
{
	static _Atomic bool has_warned;
	unsigned memory = map->tiers & ~tiers_with_files();
	unsigned grows = (unsigned)__builtin_ctz(memory ? memory : map->tiers);
	size_t least = MIN_FRAMES * map->seg_size, has = 0;

	for (unsigned tier = 0; tier <= tier_count && has < least; tier++)
		has += map->tiers >> tier & 1 ? min_size(frame_limit_at(tier), least) : 0;
	if (has >= least)
		return;
	frame_add_limit(grows, least - has);
	if (!atomic_exchange(&has_warned, true))
		log_line(LOG_WARN, "start", "the tiers of '%s', %zu bytes, are too small for %d "
			 "segments of %zu bytes, the minimum, so the tier '%s' has %zu bytes. Try "
			 "smaller segments, or larger tiers", map->name, has, MIN_FRAMES,
			 map->seg_size, tiers[grows].name, frame_limit_at(grows));
}

/* For a mapping whose frames are copied. */
static int use_no_tier(struct mapping *map, const char *names, const char *reason)
{
	static _Atomic bool has_warned;
	const char *what = reason ? "" : "the engine ", *name = reason ? reason : map->engine->name;

	map->tiers = 1u << tier_count;
	if (names)
		return fail(EINVAL, "cannot use the tiers '%.100s' with %s%s: such a mapping is in "
			    "no tier. Try to leave one of them out", names, what, name);
	if (!atomic_exchange(&has_warned, true))
		log_line(LOG_WARN, "start", "a mapping with %s%s is in no tier "
			 "(ummap-tiers(7))", what, name);
	return 0;
}

int tiering_begin(struct mapping *map, const char *names, const char *reason)
{
	int err;

	if (!tier_count && !names)
		return 0;
	if (tier_count && frames_are_copied(map->frames))
		return use_no_tier(map, names, reason);
	err = tiers_find(names, &map->tiers);
	if (!err && (map->shared || !frames_are_whole(map->frames)))
		err = leave_files_out(map, names, reason);
	if (!err)
		ensure_least(map);
	map->member.tiers = is_static() ? 0 : map->tiers;
	return err;
}

size_t tiering_find_room(const struct mapping *map)
{
	size_t memory = 0, files = 0, memory_pinned = 0;

	for (unsigned tier = 0; tier <= tier_count; tier++) {
		size_t pinned = frame_pinned_at(tier);
		size_t room = map->tiers >> tier & 1 ?
			      subtract_size(frame_limit_at(tier), pinned) : 0;

		if (place_has_file(tier)) {
			files += room;
		} else {
			memory += min_size(room, SIZE_MAX - memory);
			memory_pinned += pinned;
		}
	}
	/* The budget also limits memory, but not files. */
	return files + min_size(memory, budget_room_beside(memory_pinned, map->member.least));
}

/* Returns the tier in which segment i must stay, or tier_count. */
static unsigned pinned_tier(const struct mapping *map, size_t i)
{
	for (unsigned k = 0; k < map->residency.tier_range_count; k++) {
		const struct tier_range *r = &map->residency.tier_ranges[k];

		if (r->tier != tier_count && i >= r->first && i < r->last)
			return r->tier;
	}
	return tier_count;
}

void tiering_note_load(struct seg *s, uint32_t frame)
{
	frame_set_user(frame, s);
	if (frame_place(frame) < tier_count)
		add(counts[frame_place(frame)].loads, 1);
}

/* ---- Moves ---- */

/* Moves a locked segment to a taken frame. Returns its old frame, or FRAME_NONE. */
static uint32_t move_segment(struct mapping *map, size_t i, struct seg *s, uint32_t frame)
{
	uint32_t old = seg_move(map, i, s, frame);
	unsigned from, to = frame_place(frame);

	if (old == FRAME_NONE)
		return old;
	frame_set_user(frame, s);
	from = frame_place(old);
	if (to < from)
		add(counts[to].promotions, 1);
	else
		add(counts[from].demotions, 1);
	return old;
}

/* Whether a locked segment can move from its frame to a tier. Other processes that access a segment
 * know its frame. */
static bool can_move(const struct mapping *map, const struct seg *s, uint32_t frame, unsigned to)
{
	return seg_has(s, SEG_VALID) && s->frame == frame && !seg_pins(s) && !map->shared &&
	       map->tiers >> to & 1 &&
	       pinned_tier(map, map_index(map, s)) != frame_place(frame);
}

/* ---- Samples ---- */

/* Makes the next access to a locked segment fault. Returns false if that is not possible. */
static bool take_rights(struct mapping *map, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_INACTIVE))
		return true;
	if (!seg_has(s, SEG_DIRTY)) {
		cache_remove(&map->member, s);
		return seg_deactivate(map, i, s) == 0;
	}
	if (!seg_has(s, SEG_WRITABLE) || map->engine->protect(map->engine, map_slot(map, i),
							      map_slot_len(map, i), false) < 0)
		return false;
	seg_change(s, SEG_WRITABLE, 0);
	frame_note_split(s->frame, 1);
	return true;
}

static void sample_segment(struct mapping *map, size_t i, struct seg *s)
{
	struct frame_use *use = frame_use(s->frame);

	if (pinned_tier(map, i) == tier_count && !use->sampled && take_rights(map, i, s))
		use->sampled = now_ms();
}

/* Samples the next segment of a tier. Returns false if none was found. */
static bool sample_next(struct frame_class *c, unsigned tier)
{
	void *user;
	uint32_t frame = frame_next_user(c, tier, FRAME_HAND_SAMPLES, &user);
	struct member *m;
	struct seg *s = user;

	if (frame == FRAME_NONE)
		return false;
	if (!cache_lock_user(s, &m))
		return true;
	if (can_move(map_of(m), s, frame, tier))
		sample_segment(map_of(m), map_index(map_of(m), s), s);
	seg_unlock(s);
	return true;
}

/* ---- Exchanges ---- */

static uint32_t rank_of(const struct frame_use *use)
{
	struct ummap_tier_use u = { use->sampled ? now_ms() - use->sampled : 0, use->interval[0],
				    use->interval[1] };

	return is_static() ? 0 : policy->rank(&u);
}

/* Moves a segment of a tier to a taken frame of another one, and returns the frame that it had; or
 * FRAME_NONE. least: the rank that the segment must have. */
static uint32_t exchange_frame(struct frame_class *c, unsigned tier, uint32_t frame,
	uint32_t least)
{
	uint32_t old = FRAME_NONE;

	for (unsigned n = 0; n < MAX_TIER_VICTIMS && old == FRAME_NONE; n++) {
		struct member *m;
		void *user;
		uint32_t at = frame_next_user(c, tier, FRAME_HAND_VICTIMS, &user);
		struct seg *s = user;

		if (at == FRAME_NONE || !cache_lock_user(s, &m))
			continue;
		if (can_move(map_of(m), s, at, frame_place(frame)) &&
		    rank_of(frame_use(at)) >= least)
			old = move_segment(map_of(m), map_index(map_of(m), s), s, frame);
		seg_unlock(s);
	}
	return old;
}

uint32_t tiering_improve(struct mapping *map, uint32_t frame)
{
	unsigned wanted = fastest_tier(map);

	if (is_static() || wanted >= tier_count)
		return frame;
	/* A frame that was free or has been taken from another mapping may be in any tier. */
	for (unsigned tier = wanted; tier < tier_count &&
				     !(map->tiers >> frame_place(frame) & 1); tier++) {
		uint32_t better = map->tiers >> tier & 1 ?
				  exchange_frame(map->frames, tier, frame, 0) : FRAME_NONE;

		if (better != FRAME_NONE)
			return better;
	}
	for (unsigned tier = frame_place(frame); policy->load_rank != UMMAP_TIER_NEVER &&
						 tier-- > wanted;) {
		uint32_t better = exchange_frame(map->frames, tier, frame, policy->load_rank);

		if (better != FRAME_NONE)
			frame = better;
	}
	return frame;
}

/* Moves a locked segment to a tier. If that is full, one of its segments whose rank is at least
 * `least` takes the place of this one, and for a moment the process has one frame more than its
 * budget. */
static void move_to_tier(struct mapping *map, size_t i, struct seg *s, unsigned tier,
	uint32_t least)
{
	uint32_t frame = frame_take(map->frames, 1u << tier,
				    budget_frame_limit(map->member.least)), spare, old;
	bool over = frame == FRAME_NONE;

	if (over) {
		spare = frame_take(map->frames, 1u << frame_place(s->frame), FRAME_ONE_MORE);
		if (spare == FRAME_NONE)
			return;
		frame = exchange_frame(map->frames, tier, spare, least);
		if (frame == FRAME_NONE) {
			frame_free_to_system(spare);
			return;
		}
	}
	old = move_segment(map, i, s, frame);
	old = old == FRAME_NONE ? frame : old;
	if (over)
		frame_free_to_system(old);
	else
		frame_free(old);
}

void tiering_note_use(struct mapping *map, size_t i, struct seg *s)
{
	struct frame_use *use = frame_use(s->frame);
	unsigned place = frame_place(s->frame), pinned = pinned_tier(map, i);
	uint32_t least;

	if (seg_pins(s) || map->shared || place >= tier_count)
		return;
	if (pinned != tier_count) {
		if (pinned != place)
			move_to_tier(map, i, s, pinned, 0);
		return;
	}
	if (!use->sampled)
		return;
	add(counts[place].hits, 1);
	use->interval[1] = use->interval[0];
	use->interval[0] = (uint32_t)max_size(now_ms() - use->sampled, 1);
	use->sampled = 0;
	if (place == fastest_tier(map))
		return;
	least = policy->promote(&(struct ummap_tier_use){ 0, use->interval[0], use->interval[1] });
	if (least != UMMAP_TIER_NEVER && promotion_us > 0) {
		int64_t begin = thread_time_us();

		move_to_tier(map, i, s, fastest_tier(map), least);
		promotion_us -= thread_time_us() - begin;
	}
}

bool tiering_shrink(struct mapping *map)
{
	unsigned files = tiers_with_files();
	uint32_t frame, old = FRAME_NONE;

	if (!(map->tiers & files) || !frames_are_whole(map->frames))
		return false;
	frame = frame_take(map->frames, map->tiers & files, SIZE_MAX);
	for (unsigned tier = 0; frame != FRAME_NONE && tier < tier_count && old == FRAME_NONE;
	     tier++)
		old = files >> tier & 1 ? FRAME_NONE : exchange_frame(map->frames, tier, frame, 0);
	if (frame != FRAME_NONE)
		frame_free_to_system(old == FRAME_NONE ? frame : old);
	return old != FRAME_NONE;
}

/* Samples the next segment of each class in a tier. Returns false if none was found. */
static bool sample_classes(unsigned tier)
{
	struct frame_class *c;
	bool found = false;

	for (unsigned n = 0; (c = frame_nth_class(n)); n++)
		found |= sample_next(c, tier);
	return found;
}

void tiering_sample(void)
{
	if (!tier_count || is_static())
		return;
	if (promotion_us < MAX_PROMOTION_US)
		promotion_us += PROMOTION_ROUND_US;
	for (unsigned tier = 0; tier < tier_count; tier++) {
		int64_t end = thread_time_us() + SAMPLE_ROUND_US / tier_count;

		for (unsigned k = 0; k < MAX_SAMPLES_PER_ROUND && thread_time_us() < end &&
				     sample_classes(tier); k++)
			;
	}
}

/* ---- Advice and counters ---- */

static int apply_pin(struct mapping *map, size_t i, struct seg *s)
{
	unsigned tier = pinned_tier(map, i);

	if (tier != tier_count && frame_place(s->frame) != tier && !seg_pins(s) && !map->shared)
		move_to_tier(map, i, s, tier, 0);
	return 0;
}

int tiering_pin(struct mapping *map, size_t first, size_t last, unsigned tier)
{
	struct map_residency *r = &map->residency;
	unsigned k = 0;
	int err = 0;

	futex_lock(&r->stream_lock);
	for (k = 0; k < r->tier_range_count; k++) {
		struct tier_range *old = &r->tier_ranges[k];

		if (old->first < last && first < old->last)
			old->tier = tier_count;
	}
	for (k = 0; k < r->tier_range_count && r->tier_ranges[k].tier != tier_count; k++)
		;
	if (tier != tier_count && k == MAX_TIER_RANGES) {
		err = -ENOSPC;
	} else if (tier != tier_count) {
		r->tier_ranges[k].first = first;
		r->tier_ranges[k].last = last;
		r->tier_ranges[k].tier = tier;
		if (k == r->tier_range_count)
			r->tier_range_count = k + 1;
	}
	futex_unlock(&r->stream_lock);
	return err ? err : map_for_valid(map, first, last, apply_pin);
}

void tiering_count(struct umstat *st)
{
	st->tiers = tier_count;
	for (unsigned i = 0; i < tier_count; i++) {
		st->tier_bytes[i] = frame_held_at(i);
		st->tier_loads[i] = counts[i].loads;
		st->tier_promotions[i] = counts[i].promotions;
		st->tier_demotions[i] = counts[i].demotions;
		st->tier_hits[i] = counts[i].hits;
	}
}

void tiering_forget(void)
{
	memset((void *)counts, 0, sizeof(counts));
	promotion_us = PROMOTION_ROUND_US;
}
