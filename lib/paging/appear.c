/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Home -> view. The orders that must hold:
 *  - a frame gets its rights at home, and is published last: nobody sees it half filled, or before it is listed;
 *  - a segment is marked as changed before it can be stored to: a sync of any thread finds it;
 *  - and its twin is taken before, where it needs one: what is stored is what differs.
 * Takes no lock; the caller holds the segment's.
 */
#include "paging/appear.h"

#include "paging/ahead.h"
#include "engine/engine.h"
#include "paging/evict.h"
#include "paging/refuse.h"
#include "paging/twin.h"

/* Whether an engine that lacked a mapping of the kernel's has one now. Where places take none, memory itself is short, and
 * whoever may wait for more of it tries again (seg_fault). */
static bool found_mapping(struct set *set, int err)
{
	return err == -ENOMEM && set->engine->vma_each && evict_shed(set);
}

static int publish(struct set *set, size_t i, uint32_t frame, bool writable)
{
	size_t len = set_view_len(set, i);
	int err;

	do {
		/* What of a frame stays at home has no rights that are noted: it can always be written. */
		err = len < set->seg_size ? frame_make_writable(frame, 1) : 0;
		if (!err)
			err = set->engine->map(set_view(set, i), frame_home(frame), len, frame_writable(frame),
					     writable);
	} while (found_mapping(set, err));
	if (!err)
		frame_set_writable(frame, 1, writable);
	return err;
}

static int protect(struct set *set, size_t i, const struct seg *s, bool writable)
{
	int err;

	do
		err = set->engine->protect(set_view(set, i), set_view_len(set, i), writable);
	while (found_mapping(set, err));
	if (!err)
		frame_note_split(s->frame, 1);
	return err;
}

/* What has to be undone is undone by this: only the holder of the lock changes it. */
static void set_head(const struct set *set, struct seg *s, uint64_t head)
{
	set_await(set, s);
	atomic_store_explicit(&s->head, head, memory_order_relaxed);
}

int appear_twin(struct set *set, size_t i, const char *buf)
{
	uint32_t frame;
	int err;

	if (!set->writers || twin_has(set, i))
		return 0;
	frame = evict_take_frame(set, false);
	if (frame == FRAME_NONE)
		return -ENOMEM;
	do
		err = frame_make_writable(frame, 1);
	while (found_mapping(set, err));
	if (err)
		evict_return_frame(set, frame);
	else
		twin_keep(set, i, buf, frame);
	return err;
}

/* Present in the view, but perhaps without the right that was wanted. Whoever gets it may look at the counters at
 * once, so they come first. */
int appear_upgrade(struct set *set, size_t i, struct seg *s, bool write)
{
	uint64_t before = seg_head(s);
	int err;

	if (!write || seg_has(s, SEG_WRITABLE)) {
		add(set->stat.spurious_faults, 1);
		/* Nothing should be missing, but a call that failed half-way may have left less. */
		return protect(set, i, s, seg_has(s, SEG_WRITABLE));
	}
	err = appear_twin(set, i, set_view(set, i));
	if (err)
		return err;
	set_mark_dirty(set, i, s);
	seg_change(s, 0, SEG_WRITABLE | SEG_EXPOSED);
	if (!(before & SEG_DIRTY))
		cache_touch(&set->member, s, UMMAP_EV_DIRTIED);
	add(set->stat.upgrade_faults, 1);
	err = protect(set, i, s, true);
	if (!err)
		return 0;
	if (!(before & SEG_DIRTY))
		cache_touch(&set->member, s, UMMAP_EV_CLEANED);
	set_head(set, s, before | SEG_EXPOSED); /* some of its pages may be */
	return err;
}

/* The segment, which was in no list, is resident from now on. */
static void arrive(struct set *set, struct seg *s, bool write, enum ummap_event why)
{
	bool ahead = seg_has(s, SEG_AHEAD), standby = seg_has(s, SEG_STANDBY);
	bool writable = seg_has(s, SEG_DIRTY);

	seg_change(s, SEG_STANDBY | SEG_AHEAD | SEG_EXPOSED | SEG_LENT, writable ? SEG_WRITABLE | SEG_EXPOSED : 0);
	cache_insert(&set->member, s, why);
	if (standby && !ahead)
		cache_touch(&set->member, s, UMMAP_EV_RETURN);
	add(*(write ? &set->stat.write_faults : &set->stat.read_faults), 1);
	if (standby)
		add(*(ahead ? &set->stat.ahead_hits : &set->stat.standby_hits), 1);
	if (ahead)
		ahead_used(set);
	else if (standby)
		ahead_pressed(set);
}

/* Its frame is at home, and it is in no list: it appears in the view. */
int appear(struct set *set, size_t i, struct seg *s, bool write)
{
	int err = seg_has(s, SEG_BARRED) ? refuse_lift(set, i, s) : 0;
	uint64_t before = seg_head(s);

	if (!err && write)
		err = appear_twin(set, i, frame_home(s->frame));
	if (err)
		return err;
	if (write)
		set_mark_dirty(set, i, s);
	arrive(set, s, write, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
	err = publish(set, i, s->frame, seg_has(s, SEG_WRITABLE));
	if (err) {
		cache_remove(&set->member, s);
		set_head(set, s, before);
	} else if (before & SEG_LENT) {
		set->lent--;
	}
	return err;
}

int appear_together(struct set *set, size_t i, struct seg **list, unsigned n)
{
	uint32_t first = list[0]->frame;
	uint64_t before[PIECE_MOST];
	int err;

	for (unsigned k = 0; k < n; k++) {
		before[k] = seg_head(list[k]);
		arrive(set, list[k], false, k ? UMMAP_EV_AHEAD : UMMAP_EV_READ);
	}
	err = set->engine->is_one(frame_home(first), n << set->shift) ? 0 : -EFAULT;
	if (!err)
		err = set->engine->map(set_view(set, i), frame_home(first), n << set->shift,
				     frame_writable(first), false);
	if (!err)
		frame_set_writable(first, n, false);
	for (unsigned k = 0; k < n && err; k++) {
		cache_remove(&set->member, list[k]);
		set_head(set, list[k], before[k]);
	}
	return err;
}
