/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves segments between their states. The orders that must hold:
 *  - a frame is filled and gets its rights in the pool, and is mapped last: nobody sees it half filled, or before it is
 *    listed;
 *  - a segment is marked as dirty before it can be stored to: a sync of any thread finds it; and its twin is taken before,
 *    where it needs one: what is stored is what differs;
 *  - a mapped place loses its rights before its frame leaves: no store is lost;
 *  - a dirty frame is given away only after it was written.
 * A segment's lock is held from the first look to the last change, I/O included. While one is held another
 * is only trylocked. Nothing here allocates or logs on the way of a fault.
 */
#include "paging/segment.h"

#include "paging/ahead.h"
#include "engine/engine.h"
#include "paging/evict.h"
#include "paging/lend.h"
#include "paging/twin.h"
#include "paging/writeback.h"

#include <string.h>
#include <ummap.h>

/* ---- Page in: what goes into the frame of an absent segment, the bytes of its store or zeros ---- */

/* A frame in the pool may be written from then on. */
static int make_writable(struct set *set, uint32_t frame)
{
	int err;

	do
		err = frame_make_writable(frame, 1);
	while (err == -ENOMEM && evict_shed(set));
	return err;
}

bool seg_request(struct set *set, size_t i, struct seg *s, uint32_t frame, struct ummap_io *io)
{
	const struct target *t = &set->targets[seg_target(s)];
	size_t len = set_len(set, i), read = set_reads(set, s) ? len : 0;
	char *home = frame_home(frame);

	if (!frame_use_blank(frame))
		memset(home + read, 0, set_view_len(set, i) - read);
	if (!read)
		return false;
	*io = (struct ummap_io){ .op = UMMAP_IO_READ, .buf = home, .len = len,
				 .off = t->offset + ((uint64_t)i << set->shift), .owner = s };
	return true;
}

/* What leaves the thread free while storage works makes up for the frame that was taken. */
static int load(struct set *set, struct ummap_io *io, struct store *store)
{
	struct ummap_io *one = io, *done;
	int n;

	engine_hand_off();
	if (!io_overlaps(store) || io_begin(store, &one, 1) == 0)
		return io_run(store, io, 1, false, &set->stat.io);
	evict_resupply(set, 1);
	n = io_end(store, &done, 1);
	if (n < 0)
		io->res = n;
	io_count(&set->stat.io, io, 1);
	return io->res;
}

/* Fills the frame, in the pool, with what belongs into segment i, which the caller has locked. */
static int page_in(struct set *set, size_t i, struct seg *s, uint32_t frame)
{
	struct ummap_io io;
	int err = make_writable(set, frame);

	if (err || !seg_request(set, i, s, frame, &io))
		return err;
	return load(set, &io, set->targets[seg_target(s)].store);
}

/* ---- Map: from the pool to the mapped range, with final rights ---- */

/* Whether an engine that lacked a mapping of the kernel's has one now. Where places take none, memory itself is short, and
 * whoever may wait for more of it tries again (seg_fault). */
static bool found_mapping(struct set *set, int err)
{
	return err == -ENOMEM && set->engine->vma_each && evict_shed(set);
}

static int map_frame(struct set *set, size_t i, uint32_t frame, bool writable)
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

static int make_twin(struct set *set, size_t i, const char *buf)
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
static int upgrade(struct set *set, size_t i, struct seg *s, bool write)
{
	uint64_t before = seg_head(s);
	int err;

	if (!write || seg_has(s, SEG_WRITABLE)) {
		add(set->stat.spurious_faults, 1);
		/* Nothing should be missing, but a call that failed half-way may have left less. */
		return protect(set, i, s, seg_has(s, SEG_WRITABLE));
	}
	err = make_twin(set, i, set_view(set, i));
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

int seg_unpoison(struct set *set, size_t i, struct seg *s)
{
	int err = set->engine->unpoison(set_view(set, i), set_view_len(set, i));

	if (!err)
		seg_change(s, SEG_BARRED | SEG_FORGIVING, 0);
	return err;
}

/* Its frame is in the pool, and it is in no list. */
static int map_segment(struct set *set, size_t i, struct seg *s, bool write)
{
	int err = seg_has(s, SEG_BARRED) ? seg_unpoison(set, i, s) : 0;
	uint64_t before = seg_head(s);

	if (!err && write)
		err = make_twin(set, i, frame_home(s->frame));
	if (err)
		return err;
	if (write)
		set_mark_dirty(set, i, s);
	arrive(set, s, write, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
	err = map_frame(set, i, s->frame, seg_has(s, SEG_WRITABLE));
	if (err) {
		cache_remove(&set->member, s);
		set_head(set, s, before);
	} else if (before & SEG_LENT) {
		set->lent--;
	}
	return err;
}

static int map_cluster(struct set *set, size_t i, struct seg **list, unsigned n)
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

/* ---- Unmap: back to the pool; and inactive: unmapped, and near ---- */

int seg_unmap(struct set *set, size_t i, struct seg **list, unsigned n)
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

int seg_deactivate(struct set *set, size_t i, struct seg *s)
{
	int err = seg_unmap(set, i, &s, 1);

	if (err) {
		seg_put_back(set, s);
		return err;
	}
	seg_change(s, SEG_WRITABLE, SEG_STANDBY);
	cache_stand(&set->member, s, seg_has(s, SEG_DIRTY) ? STANDBY_DIRTY : place(set));
	return 0;
}

int seg_deactivate_cluster(struct set *set, size_t i, struct seg **list, unsigned n)
{
	int err = seg_unmap(set, i, list, n);

	if (err)
		return err;
	for (unsigned k = 0; k < n; k++)
		seg_change(list[k], 0, SEG_STANDBY);
	cache_stand_all(&set->member, list, n, place(set));
	return 0;
}

void seg_put_back(struct set *set, struct seg *s)
{
	cache_insert(&set->member, s, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
}

/* ---- Faults, pins, eviction, migration ---- */

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
static bool return_cluster(struct set *set, size_t i, struct seg *s)
{
	struct seg *list[PIECE_MOST] = { s };
	unsigned n = waits_ahead(s) ? set_lock_piece(set, i, list, PIECE_MOST, waits_too) : 1;
	bool done = false;

	if (n > 1) {
		for (unsigned k = 0; k < n; k++)
			cache_remove(&set->member, list[k]);
		done = map_cluster(set, i, list, n) == 0;
		for (unsigned k = 0; k < n && !done; k++)
			cache_stand(&set->member, list[k], STANDBY_AHEAD);
	}
	set_unlock_piece(set, i, list, n);
	return done;
}

static int return_inactive(struct set *set, size_t i, struct seg *s, bool write)
{
	bool ahead = seg_has(s, SEG_AHEAD);
	int err;

	if (ahead && !write && return_cluster(set, i, s)) {
		evict_expect(set);
		return 0;
	}
	cache_remove(&set->member, s);
	err = map_segment(set, i, s, write);
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
		err = map_segment(set, i, s, write);
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
	return install(set, i, s, frame, write, page_in(set, i, s, frame));
}

static int bring_locked(struct set *set, size_t i, struct seg *s, bool write)
{
	if (!seg_has(s, SEG_VALID))
		return bring_in(set, i, s, write);
	if (seg_has(s, SEG_STANDBY))
		return return_inactive(set, i, s, write);
	return upgrade(set, i, s, write);
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

int seg_load_begin(struct set *set, size_t i, bool write, struct seg_load *l)
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
	else if (seg_request(set, i, s, frame, &l->io))
		err = 1;
	else
		err = install(set, i, s, frame, write, 0);
	l->frame = frame;
	if (err != 1)
		set_unlock(set, i, s);
	return err;
}

int seg_load_end(struct seg_load *l)
{
	io_count(&l->set->stat.io, &l->io, 1);
	return install(l->set, l->i, l->io.owner, l->frame, l->write, l->io.res);
}

void seg_load_unlock(struct seg_load *l)
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
	if (!seg_has(s, SEG_STANDBY) && seg_unmap(set, i, &s, 1) < 0) {
		seg_put_back(set, s);
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
	gone = seg_unmap(set, i, list, n) == 0;
	for (unsigned k = n; k-- > 0;) {
		/* To whoever comes next, while caches have it. */
		if (gone)
			frame_give(evict_let_go(set, list[k]));
		else
			seg_put_back(set, list[k]);
	}
}

void seg_drop_behind(struct set *set, size_t first, size_t count)
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
	err = page_in(set, i, s, frame);
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

int seg_migrate(struct set *set, size_t first, size_t last, bool descending)
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

static int unmap_one(struct set *set, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_STANDBY))
		return 0;
	cache_remove(&set->member, s);
	return seg_deactivate(set, i, s);
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
	err = make_twin(set, i, frame_home(s->frame));
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
		err = unmap_one(set, i, s);
	if (!err)
		err = make_writable(set, s->frame);
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

int seg_unmap_all(struct set *set, size_t first, size_t last)
{
	return set_for_valid(set, first, last, unmap_one);
}
