/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds frames: free ones, ones of segments on standby, ones of segments that go there now. A place in the
 * view loses its rights before its frame leaves, so that no store is lost; a dirty frame is given away only
 * after it was written. Segments are trylocked only: the caller holds one already.
 */
#include "evict.h"

#include "budget.h"
#include "engine.h"
#include "worker.h"
#include "writeback.h"

#include <sched.h>
#include <ummap.h>

/* Parts of the budget: kept on standby, as a supply for faults and a second chance for what a policy
 * misjudged; when to fill it up again; changed ones that may wait to be written there; and how many of these
 * make it worth waking a worker. */
#define STANDBY_PART 8
#define STANDBY_LOW_PART 16
#define UNWRITTEN_PART 4
#define BEHIND_PART 32
#define BEHIND_MOST ((size_t)4 << 20)
/* How often a thread tries again when every frame is in somebody's hands. */
#define PATIENCE 10000

static _Atomic bool supplying;

size_t evict_limit(const struct set *set)
{
	return max_size(budget_bytes(), EVICT_FRAMES_MIN * set->seg_size);
}

/* A segment that is in no list gives up its frame, whose contents are in storage or not wanted. */
uint32_t evict_let_go(struct set *set, struct seg *s)
{
	if (seg_has(s, SEG_AHEAD))
		add(set->stat.ahead_waste, 1);
	seg_change(s, SEG_VALID | SEG_STANDBY | SEG_DIRTY | SEG_WRITABLE | SEG_AHEAD, 0);
	set->bytes -= set->seg_size;
	return s->frame;
}

static void put_back(struct set *set, struct seg *s)
{
	cache_insert(&set->member, s, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
}

/* A changed one is written where it stands first. */
static bool discard(struct set *set, size_t i, struct seg *s)
{
	bool clean = !seg_has(s, SEG_DIRTY);

	/* Back in its list meanwhile, because writing it is heard of there. */
	if (!clean) {
		put_back(set, s);
		clean = writeback_locked(set, i, i + 1) == 0 && !seg_has(s, SEG_DIRTY);
		if (clean)
			cache_remove(&set->member, s);
	}
	if (!clean)
		return false;
	if (engine_discard(set_view(set, i), set_view_len(set, i)) < 0) {
		put_back(set, s);
		return false;
	}
	frame_release(evict_let_go(set, s));
	add(set->stat.evictions, 1);
	return true;
}

/* There is no mapping left to move a frame with: drops a segment where it stands. */
bool evict_shed(struct set *wanted)
{
	struct member *m;
	struct seg *s = cache_victim(&wanted->member, false, true, &m);
	struct set *set;
	bool done;

	if (!s)
		s = cache_victim(&wanted->member, false, false, &m);
	if (!s)
		return false;
	set = set_of(m);
	done = discard(set, set_index(set, s), s);
	seg_unlock(s);
	/* Keep clear of where it happened. */
	if (done)
		frame_restrict(frame_used() - frame_used() / 16);
	return done;
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

/* The frame of a resident segment that is in no list goes home. */
int evict_home(struct set *set, size_t i, struct seg *s)
{
	bool writable = seg_has(s, SEG_WRITABLE);
	int err = engine_retract(set_view(set, i), frame_home(s->frame), set_view_len(set, i), writable);

	if (err)
		return err;
	frame_set_writable(s->frame, writable);
	add(set->stat.evictions, 1);
	return 0;
}

/* Resident, locked and in no list -> standby. On failure it is put back. */
int evict_to_standby(struct set *set, size_t i, struct seg *s)
{
	int err = evict_home(set, i, s);

	if (err)
		put_back(set, s);
	else
		stand(set, s);
	return err;
}

/* Sends a resident segment to standby, so that its frame can be had. */
static bool retire(struct set *wanted, bool only, bool clean)
{
	struct member *m;
	struct seg *s = cache_victim(&wanted->member, only, clean, &m);
	struct set *set;
	size_t i;
	int err;

	if (!s)
		return false;
	set = set_of(m);
	i = set_index(set, s);
	err = evict_to_standby(set, i, s);
	if (!err && seg_has(s, SEG_DIRTY) &&
	    cache_unwritten_bytes() >= min_size(evict_limit(set) / BEHIND_PART, BEHIND_MOST))
		writeback_behind(set);
	seg_unlock(s);
	return err ? evict_shed(wanted) : true;
}

/* Takes the frame of a segment that is on standby and clean. FRAME_NONE: try again, something has moved. */
static bool reclaim(struct set *wanted, bool only, size_t limit, bool ahead, uint32_t *frame)
{
	struct member *m;
	struct seg *s = ahead ? cache_reclaim_ahead(&m) : cache_reclaim(&wanted->member, only, &m);
	struct set *set;
	uint32_t got;
	bool fits;

	if (!s)
		return false;
	set = set_of(m);
	got = evict_let_go(set, s);
	/* Once it is unlocked, the other mapping may end at any moment. */
	fits = set->seg_size == wanted->seg_size;
	seg_unlock(s);
	if (fits && frame_held() <= limit)
		*frame = got;
	else
		frame_release(got);
	return true;
}

static size_t on_standby(void)
{
	return cache_clean_bytes() + cache_unwritten_bytes();
}

/* Filling the supply takes several system calls a segment: a worker makes them while faults wait for I/O. */
static void supply_job(void *arg, uint64_t a, uint64_t b)
{
	struct set *set = arg;
	size_t limit = evict_limit(set);

	(void)a;
	(void)b;
	while (!set->frozen && on_standby() < limit / STANDBY_PART && retire(set, false, false))
		;
	supplying = false;
	set_put(set);
}

static void call_supply(struct set *set, size_t limit)
{
	if (on_standby() >= limit / STANDBY_LOW_PART || atomic_exchange(&supplying, true))
		return;
	set->users++;
	if (!worker_post(supply_job, set, 0, 0)) {
		supplying = false;
		set_put(set);
	}
}

/* For a thread that waits for I/O anyway: replaces what it took from the supply. */
void evict_resupply(struct set *set)
{
	size_t limit = evict_limit(set);

	if (on_standby() < limit / STANDBY_PART && !frame_spare(set->seg_size, limit))
		retire(set, false, false);
}

/* One step towards a frame; false: nothing could be done. */
static bool make_room(struct set *set, bool only, size_t limit, bool ahead, uint32_t *frame)
{
	bool backlog = cache_unwritten_bytes() >= limit / UNWRITTEN_PART;

	if (!only)
		call_supply(set, limit);
	if (reclaim(set, only, limit, false, frame))
		return true;
	if ((!backlog && retire(set, only, false)) || retire(set, only, true))
		return true;
	/* Nothing clean is left. Read-ahead does not wait for writes. */
	if (ahead)
		return false;
	return writeback_standby(only ? set : NULL) || reclaim(set, only, limit, true, frame) ||
	       writeback_wait() || retire(set, only, false);
}

/*
 * A frame for the set, within the budget as long as something clean can be let go, over it rather than
 * blocking or losing data. FRAME_NONE: for read-ahead, no room; else no memory at all.
 */
uint32_t evict_take_frame(struct set *set, bool ahead)
{
	size_t limit = evict_limit(set);
	uint32_t frame = FRAME_NONE;

	for (unsigned tries = 0; tries < PATIENCE; tries++) {
		bool only = set->budget && set->bytes >= EVICT_FRAMES_MIN * set->seg_size &&
			    set->bytes + set->seg_size > set->budget;

		if (!only)
			frame = frame_take(set->seg_size, limit);
		if (frame != FRAME_NONE)
			break;
		if (!only && frame_shrink(set->seg_size))
			continue;
		if (make_room(set, only, limit, ahead, &frame)) {
			if (frame != FRAME_NONE)
				break;
			continue;
		}
		if (ahead)
			return FRAME_NONE;
		/* Nobody has anything to give just now: over the budget, or once more. */
		frame = frame_take(set->seg_size, SIZE_MAX);
		if (frame != FRAME_NONE)
			break;
		sched_yield();
	}
	if (frame != FRAME_NONE)
		set->bytes += set->seg_size;
	return frame;
}

void evict_return_frame(struct set *set, uint32_t frame)
{
	set->bytes -= set->seg_size;
	frame_give(frame);
}

void evict_forget(void)
{
	supplying = false;
}
