/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves segments between their states. The orders that must hold:
 *  - a frame is filled and gets its rights at home, and is published last: nobody sees it half filled;
 *  - a place in the view loses its rights before its frame leaves: no store is lost;
 *  - a dirty frame is given away only after it was written.
 * A segment's lock is held from the first look to the last change, I/O included. While one is held another
 * is only trylocked. Nothing here allocates or logs on the way of a fault.
 */
#include "paging/seg.h"

#include "paging/appear.h"
#include "engine/engine.h"
#include "paging/evict.h"
#include "paging/fill.h"
#include "paging/lend.h"
#include "paging/standby.h"
#include "paging/twin.h"
#include "paging/writeback.h"

#include <string.h>

static bool waits_ahead(const struct seg *s)
{
	return seg_has(s, SEG_VALID | SEG_STANDBY | SEG_AHEAD) && !seg_has(s, SEG_BARRED);
}

static bool waits_too(const struct seg *first, const struct seg *s)
{
	(void)first;
	return waits_ahead(s);
}

/* A load of a segment that was read ahead brings in what was read with it: that is what comes next. false: it has to
 * come by itself. */
static bool come_together(struct set *set, size_t i, struct seg *s)
{
	struct seg *list[PIECE_MOST] = { s };
	unsigned n = waits_ahead(s) ? set_lock_piece(set, i, list, PIECE_MOST, waits_too) : 1;
	bool done = false;

	if (n > 1) {
		for (unsigned k = 0; k < n; k++)
			cache_remove(&set->member, list[k]);
		done = appear_together(set, i, list, n) == 0;
		for (unsigned k = 0; k < n && !done; k++)
			cache_stand(&set->member, list[k], STANDBY_AHEAD);
	}
	set_unlock_piece(set, i, list, n);
	return done;
}

static int come_back(struct set *set, size_t i, struct seg *s, bool write)
{
	bool ahead = seg_has(s, SEG_AHEAD);
	int err;

	if (ahead && !write && come_together(set, i, s)) {
		evict_expect(set);
		return 0;
	}
	cache_remove(&set->member, s);
	err = appear(set, i, s, write);
	if (err)
		cache_stand(&set->member, s, seg_has(s, SEG_DIRTY) ? STANDBY_DIRTY : ahead ? STANDBY_AHEAD :
			    STANDBY_CLEAN);
	else if (ahead)
		evict_expect(set);
	return err;
}

/* The frame has been filled (err: or not), and the segment appears. */
static int install(struct set *set, size_t i, struct seg *s, uint32_t frame, bool write, int err)
{
	if (!err) {
		s->frame = frame;
		seg_change(s, 0, SEG_VALID);
		set_mark(set->touched, i);
		err = appear(set, i, s, write);
	}
	if (err) {
		set_await(set, s);
		seg_change(s, SEG_VALID, 0);
		evict_return_frame(set, frame);
	}
	return err;
}

static int bring_in(struct set *set, size_t i, struct seg *s, bool write)
{
	uint32_t frame = evict_take_frame(set, false);

	if (frame == FRAME_NONE)
		return -ENOMEM;
	return install(set, i, s, frame, write, fill(set, i, s, frame));
}

static int bring_locked(struct set *set, size_t i, struct seg *s, bool write)
{
	if (!seg_has(s, SEG_VALID))
		return bring_in(set, i, s, write);
	if (seg_has(s, SEG_STANDBY))
		return come_back(set, i, s, write);
	return appear_upgrade(set, i, s, write);
}

int seg_fault(struct set *set, size_t i, bool write)
{
	struct seg *s = set_seg(set, i);
	int err;

	if (!seg_trylock(s)) {
		engine_hand_off();
		seg_lock(s);
	}
	do
		err = bring_locked(set, i, s, write);
	while (err == -ENOMEM && evict_shed(set));
	set_unlock(set, i, s);
	return err;
}

int seg_begin(struct set *set, size_t i, bool write, struct seg_load *l)
{
	struct seg *s = set_seg(set, i);
	uint32_t frame;
	int err;

	if (!seg_trylock(s))
		return -EAGAIN;
	*l = (struct seg_load){ .set = set, .i = i, .write = write };
	frame = seg_has(s, SEG_VALID) ? FRAME_NONE : evict_take_frame(set, true);
	if (seg_has(s, SEG_VALID))
		err = bring_locked(set, i, s, write);
	else if (frame == FRAME_NONE)
		err = -EAGAIN;
	else if (fill_request(set, i, s, frame, &l->io))
		err = 1;
	else
		err = install(set, i, s, frame, write, 0);
	l->frame = frame;
	if (err != 1)
		set_unlock(set, i, s);
	return err;
}

int seg_end(struct seg_load *l)
{
	io_count(&l->set->stat.io, &l->io, 1);
	return install(l->set, l->i, l->io.owner, l->frame, l->write, l->io.res);
}

void seg_leave(struct seg_load *l)
{
	set_unlock(l->set, l->i, l->io.owner);
}

int seg_pin(struct set *set, size_t i, bool write)
{
	struct seg *s = set_seg(set, i);
	int err = 0;

	seg_lock(s);
	if (seg_pins(s) == SEG_PINS_MAX)
		err = -EAGAIN;
	else if (!seg_has(s, SEG_VALID) || seg_has(s, SEG_STANDBY) || (write && !seg_has(s, SEG_WRITABLE)))
		err = bring_locked(set, i, s, write);
	if (!err) {
		if (seg_pins(s) == 0)
			set_count_pin(set, true);
		seg_set_pins(s, seg_pins(s) + 1);
		seg_change(s, 0, write ? SEG_DEVICE : 0);
	}
	set_unlock(set, i, s);
	return err;
}

void seg_unpin(struct set *set, size_t i)
{
	struct seg *s = set_seg(set, i);

	seg_lock(s);
	if (seg_pins(s) > 0) {
		seg_set_pins(s, seg_pins(s) - 1);
		if (seg_pins(s) == 0) {
			seg_change(s, SEG_DEVICE, 0);
			set_count_pin(set, false);
		}
	}
	set_unlock(set, i, s);
}

static int evict_one(struct set *set, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_DIRTY) || seg_pins(s))
		return 0;
	cache_remove(&set->member, s);
	if (!seg_has(s, SEG_STANDBY) && standby_retract(set, i, &s, 1) < 0) {
		standby_put_back(set, s);
		return 0;
	}
	frame_release(evict_let_go(set, s));
	return 0;
}

void seg_evict(struct set *set, size_t first, size_t last)
{
	set_for_valid(set, first, last, evict_one);
	lend_recall(set, first, last);
}

static bool is_idle(const struct seg *s)
{
	return seg_has(s, SEG_VALID) && !seg_has(s, SEG_STANDBY) && !seg_has(s, SEG_DIRTY) && !seg_pins(s);
}

static bool is_idle_too(const struct seg *first, const struct seg *s)
{
	return is_idle(s) && seg_as_loaded(s) && seg_as_loaded(first);
}

/* n from segment i on, which are locked. */
static void leave_behind(struct set *set, size_t i, struct seg **list, unsigned n)
{
	bool gone;

	for (unsigned k = 0; k < n; k++)
		cache_remove(&set->member, list[k]);
	gone = standby_retract(set, i, list, n) == 0;
	for (unsigned k = n; k-- > 0;) {
		/* To whoever comes next, while caches have it. */
		if (gone)
			frame_give(evict_let_go(set, list[k]));
		else
			standby_put_back(set, list[k]);
	}
}

void seg_behind(struct set *set, size_t first, size_t count)
{
	struct seg *list[PIECE_MOST];
	size_t end = first + count;
	unsigned n;

	for (size_t i = first; i < end; i += n) {
		list[0] = set_seg(set, i);
		n = 1;
		if (!is_idle(list[0]) || !seg_trylock(list[0]))
			continue;
		if (is_idle(list[0])) {
			n = set_lock_piece(set, i, list, end - i, is_idle_too);
			leave_behind(set, i, list, n);
			set_unlock_piece(set, i, list, n);
		}
		set_unlock(set, i, list[0]);
	}
}

/* Brings an absent segment as far as standby. */
static int bring_to_standby(struct set *set, size_t i, struct seg *s)
{
	uint32_t frame = evict_take_frame(set, false);
	int err;

	if (frame == FRAME_NONE)
		return -ENOMEM;
	err = fill(set, i, s, frame);
	if (err) {
		evict_return_frame(set, frame);
		return err;
	}
	s->frame = frame;
	seg_change(s, 0, SEG_VALID | SEG_STANDBY);
	set_mark(set->touched, i);
	cache_stand(&set->member, s, STANDBY_FIRST);
	return 0;
}

int seg_complete(struct set *set, size_t first, size_t last, bool descending)
{
	int err = 0;

	for (size_t n = first; n < last && !err; n++) {
		size_t i = descending ? last - 1 - (n - first) : n;
		struct seg *s = set_seg(set, i);

		if (seg_target(s) == set->current)
			continue;
		seg_lock(s);
		if (seg_target(s) != set->current && !seg_has(s, SEG_VALID))
			err = bring_to_standby(set, i, s);
		if (!err && seg_target(s) != set->current)
			err = writeback_locked(set, i, descending ? i + 1 : last);
		set_unlock(set, i, s);
	}
	return err;
}

static int retract_one(struct set *set, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_STANDBY))
		return 0;
	cache_remove(&set->member, s);
	return standby_enter(set, i, s);
}

static bool target_is(const struct set *set, const struct seg *s, const struct store *store, uint64_t offset)
{
	const struct target *t = &set->targets[seg_target(s)];

	return seg_target(s) == set->current && t->store == store && t->offset == offset;
}

/* The segment, which is at home, has gained bytes behind its first len, and may be what no store holds as a whole. Where
 * others write, too, what it has gained of its own store is nothing that was stored; if it is going to be carried, all is. */
static int count_as_changed(struct set *set, size_t i, struct seg *s, size_t len, size_t more, bool own)
{
	int err;

	if (set->writers && own && !twin_has(set, i))
		return 0;
	err = appear_twin(set, i, frame_home(s->frame));
	if (err)
		return err;
	if (set->writers)
		memcpy(twin_home(set, i) + len, frame_home(s->frame) + len, more);
	cache_remove(&set->member, s);
	seg_change(s, SEG_AHEAD, 0);
	set_mark_dirty(set, i, s);
	cache_stand(&set->member, s, STANDBY_DIRTY);
	return 0;
}

int seg_lengthen(struct set *set, size_t size, struct store *store, uint64_t offset)
{
	size_t i = set->segs - 1, len = set_len(set, i), more = size - set->size;
	struct seg *s = set_seg(set, i);
	struct ummap_io io = { .op = UMMAP_IO_READ, .len = more, .off = offset + set->size };
	int err = 0;

	if (!more)
		return 0;
	seg_lock(s);
	if (!seg_has(s, SEG_VALID))
		err = bring_to_standby(set, i, s);
	else if (!seg_has(s, SEG_STANDBY))
		err = retract_one(set, i, s);
	if (!err)
		err = fill_make_writable(set, s->frame);
	if (!err) {
		io.buf = frame_home(s->frame) + len;
		memset(io.buf, 0, more);
		if (set->targets[set->current].read)
			err = io_run(store, &io, 1, false, &set->stat.io);
	}
	if (!err && set->writable)
		err = count_as_changed(set, i, s, len, more, target_is(set, s, store, offset));
	set_unlock(set, i, s);
	return err;
}

static int pass_by(struct set *set, size_t i, struct seg *s)
{
	(void)set;
	(void)i;
	(void)s;
	return 0;
}

void seg_hide(struct set *set)
{
	cache_hide(&set->member, true);
	/* Whoever found one of its segments before that, and works on it, holds its lock. */
	set_for_valid(set, 0, set->segs, pass_by);
}

void seg_show(struct set *set)
{
	cache_hide(&set->member, false);
}

int seg_retract(struct set *set, size_t first, size_t last)
{
	return set_for_valid(set, first, last, retract_one);
}
