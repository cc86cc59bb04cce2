/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves segments between their states. lib/STATES.md has the states, the events and the required
 * orders. The lock of a segment is held from the first read to the last change, I/O included. A
 * thread that holds one such lock takes further ones only by trylock. Nothing here allocates or
 * logs on the fault path.
 */
#include "paging/fault/segment.h"

#include "paging/residency/huge_blocks.h"
#include "paging/residency/neighbors.h"
#include "paging/residency/readahead.h"
#include "paging/residency/recycle.h"
#include "paging/residency/tiering.h"
#include "base/scratch.h"
#include "engine/engine.h"
#include "engine/messages.h"
#include "paging/residency/evict.h"
#include "paging/residency/pagecache.h"
#include "paging/sync/commit.h"
#include "paging/sync/guess.h"
#include "paging/sync/twin.h"
#include "paging/sync/writeback.h"

#include <string.h>
#include <ummap.h>

/* ---- Paging in: the frame of an absent segment gets the bytes of the store, or zeros ---- */

/* Makes a pool frame writable. */
static int make_frame_writable(struct mapping *map, uint32_t frame)
{
	int err;

	if (frame_writable(frame))
		return 0;
	do
		err = frame_make_writable(frame, 1);
	while (err == -ENOMEM && evict_unmap_for_vma_limit(map));
	return err;
}

bool seg_request(struct mapping *map, size_t i, struct seg *s, char *buf, bool blank,
		 struct ummap_io *io)
{
	const struct backing *t = &map->backings[seg_backing(s)];
	uint64_t off = t->offset + ((uint64_t)i << map->shift);
	size_t len = map_len(map, i);
	size_t read = map_reads(map, s) && !io_is_hole(t->store, off, len) ? len : 0;

	if (!blank)
		memset(buf + read, 0, map_slot_len(map, i) - read);
	if (!read)
		return false;
	*io = (struct ummap_io){ .op = UMMAP_IO_READ, .buf = buf, .len = len, .off = off,
				 .owner = s };
	return true;
}

int seg_read(struct mapping *map, struct store *store, struct ummap_io *io, size_t n)
{
	struct ummap_io *done;
	int ended;

	messages_pass_turn(map->engine);
	if (!io_overlaps(store) || io_begin(store, &io, 1) == 0)
		return io_run(store, io, 1, false, &map->stat.io);
	/* Some engines make up for several frames by one call. */
	for (size_t k = 0; k < n; k += DROP_BATCH)
		evict_replenish(map, 1);
	ended = io_end(store, &done, 1);
	if (ended < 0)
		io->res = ended;
	io_count(&map->stat.io, io, 1);
	return io->res;
}

/* Reads segment i, which the caller has locked, into `buf`, which has zeros if it is blank. */
static int read_segment(struct mapping *map, size_t i, struct seg *s, char *buf, bool blank)
{
	struct ummap_io io;

	if (!seg_request(map, i, s, buf, blank, &io))
		return 0;
	return seg_read(map, map->backings[seg_backing(s)].store, &io, 1);
}

/* ---- Mapping: a frame moves from the pool to the slot, and gets its final rights ---- */

/* Returns true if an engine that has failed for ENOMEM can try again. If slots take no VMAs, ENOMEM
 * means that memory is short, and a caller that may wait for memory tries again (seg_fault). */
static bool free_vmas(struct mapping *map)
{
	return frames_are_whole(map->frames) && evict_unmap_for_vma_limit(map);
}

/* Moves the frame of segment i, or n frames from there on, back to the pool. */
static int unmap_frames(struct mapping *map, size_t i, const struct seg *s, unsigned n)
{
	bool writable = seg_has(s, SEG_WRITABLE);
	struct place_policy before;
	int err;

	frame_begin_copies(s->frame, &before);
	err = map->engine->unmap(map->engine, map_slot(map, i), frame_addr(s->frame),
				 map_slots_len(map, i, n), writable, seg_has(s, SEG_EXPOSED));
	place_end(&before);
	if (!err)
		frame_note_unmapped(s->frame, n, writable);
	return err;
}

/* from: the bytes of the segment, in its pool frame or in a scratch buffer. */
static int map_frame(struct mapping *map, size_t i, uint32_t frame, char *from, bool writable)
{
	size_t len = map_slot_len(map, i);
	struct place_policy before;
	int err;

	if (from != frame_addr(frame))
		return map->engine->copy_in(map->engine, map_slot(map, i), from, len, writable);
	/* No rights are recorded for the part of a frame that stays in the pool: it must be
	 * writable. */
	err = len < map->seg_size ? make_frame_writable(map, frame) : 0;
	if (err)
		return err;
	frame_begin_copies(frame, &before);
	do
		err = map->engine->map(map->engine, map_slot(map, i), frame_addr(frame), len,
				       frame_writable(frame), writable);
	while (err == -ENOMEM && free_vmas(map));
	place_end(&before);
	if (!err)
		frame_note_mapped(frame, 1, writable, len == map->seg_size);
	return err;
}

static int protect_slot(struct mapping *map, size_t i, const struct seg *s, bool writable)
{
	int err;

	do
		err = map->engine->protect(map->engine, map_slot(map, i), map_slot_len(map, i),
					   writable);
	while (err == -ENOMEM && free_vmas(map));
	if (!err)
		frame_note_split(s->frame, 1);
	return err;
}

/* Undoes the changes of a header: only the holder of the lock makes any. */
static void restore_head(const struct mapping *map, struct seg *s, uint64_t head)
{
	map_await(map, s);
	atomic_store_explicit(&s->head, head, memory_order_relaxed);
}

/* Copies segment i, whose contents are in `buf`, to a twin if it needs one. */
static int make_twin(struct mapping *map, size_t i, const char *buf)
{
	uint32_t frame;
	int err;

	if (!map->writers || twin_has(map, i))
		return 0;
	frame = evict_take_frame(map, false);
	if (frame == FRAME_NONE)
		return -ENOMEM;
	err = make_frame_writable(map, frame);
	if (err)
		evict_return_frame(map, frame);
	else
		twin_keep(map, i, buf, frame);
	return err;
}

/* Step 1 of the cycle in STATES.md, for a resident segment without the right to store. The program
 * may read the counters as soon as the access succeeds, so `faults` changes first. */
static int allow_stores(struct mapping *map, size_t i, struct seg *s, _Atomic uint64_t *faults)
{
	uint64_t before;
	int err;

	commit_keep(map, i, s, map_slot(map, i));
	before = seg_head(s);
	err = make_twin(map, i, map_slot(map, i));
	if (err)
		return err;
	map_mark_dirty(map, i, s);
	seg_change(s, 0, SEG_WRITABLE | SEG_EXPOSED);
	if (!(before & SEG_DIRTY))
		cache_touch(&map->member, s, UMMAP_EV_DIRTIED);
	add(*faults, 1);
	err = protect_slot(map, i, s, true);
	if (!err && neighbors_come(map))
		guess_stores(map, i);
	if (!err)
		return 0;
	if (!(before & SEG_DIRTY))
		cache_touch(&map->member, s, UMMAP_EV_CLEANED);
	/* Some pages of the slot may be writable. */
	restore_head(map, s, before | SEG_EXPOSED);
	return err;
}

/* Serves an access to a resident segment. Another thread may have served it in the meantime. */
static int upgrade_segment(struct mapping *map, size_t i, struct seg *s, bool write)
{
	if (write && !seg_has(s, SEG_WRITABLE))
		return allow_stores(map, i, s, &map->stat.upgrade_faults);
	add(map->stat.spurious_faults, 1);
	/* Nothing removes rights of a mapping to which the program cannot store, nor of a part of a
	 * block on a huge page, which a call would split. */
	if (neighbors_come(map) && (!map->writable || huge_blocks_has(map, i)))
		return 0;
	/* The rights are restored, because a call that failed may have removed some. */
	return protect_slot(map, i, s, seg_has(s, SEG_WRITABLE));
}

/* Makes a segment that is in no list resident. */
static void become_resident(struct mapping *map, struct seg *s, bool write, enum ummap_event why)
{
	bool ahead = seg_has(s, SEG_AHEAD), inactive = seg_has(s, SEG_INACTIVE);
	/* Contents that a commit needs stay read-only until a store. */
	bool writable = seg_has(s, SEG_DIRTY) && !seg_has(s, SEG_COMMIT);

	seg_change(s, SEG_INACTIVE | SEG_AHEAD | SEG_EXPOSED | SEG_PAGECACHE,
		   writable ? SEG_WRITABLE | SEG_EXPOSED : 0);
	cache_insert(&map->member, s, why);
	if (inactive && !ahead)
		cache_touch(&map->member, s, UMMAP_EV_RETURN);
	add(*(write ? &map->stat.write_faults : &map->stat.read_faults), 1);
	if (inactive)
		add(*(ahead ? &map->stat.readahead_hits : &map->stat.inactive_hits), 1);
	if (ahead)
		readahead_note_use(map);
	else if (inactive)
		readahead_note_pressure(map);
}

int seg_unpoison(struct mapping *map, size_t i, struct seg *s)
{
	int err = map->engine->unpoison(map->engine, map_slot(map, i), map_slot_len(map, i),
					map->writable);

	if (!err)
		seg_change(s, SEG_POISONED | SEG_POISON_OLD, 0);
	return err;
}

/* Maps a valid segment that is in no list. from: as for map_frame. */
static int map_segment(struct mapping *map, size_t i, struct seg *s, char *from, bool write)
{
	int err = seg_has(s, SEG_POISONED) ? seg_unpoison(map, i, s) : 0;
	uint64_t before = seg_head(s);

	if (!err && before & SEG_PAGECACHE && map->engine->end_pagecache)
		err = map->engine->end_pagecache(map->engine, map_slot(map, i),
						 map_slot_len(map, i), map->writable);
	if (!err && write)
		err = make_twin(map, i, from);
	if (err)
		return err;
	if (write)
		map_mark_dirty(map, i, s);
	become_resident(map, s, write, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
	err = map_frame(map, i, s->frame, from, seg_has(s, SEG_WRITABLE));
	if (err) {
		cache_remove(&map->member, s);
		restore_head(map, s, before);
	} else if (before & SEG_PAGECACHE) {
		pagecache_uncount(map, 1);
	}
	return err;
}

/* Maps n clean inactive segments that were read ahead, by one call. They are in no list. */
static int map_cluster(struct mapping *map, size_t i, struct seg **list, unsigned n)
{
	uint32_t first = list[0]->frame;
	uint64_t before[MAX_CLUSTER_SEGMENTS];
	int err;

	for (unsigned k = 0; k < n; k++) {
		before[k] = seg_head(list[k]);
		become_resident(map, list[k], false, k ? UMMAP_EV_AHEAD : UMMAP_EV_READ);
	}
	err = map->engine->is_one(frame_addr(first), n << map->shift) ? 0 : -EFAULT;
	if (!err)
		err = map->engine->map(map->engine, map_slot(map, i), frame_addr(first),
				       n << map->shift, frame_writable(first), false);
	if (!err)
		frame_note_mapped(first, n, false, true);
	for (unsigned k = 0; k < n && err; k++) {
		cache_remove(&map->member, list[k]);
		restore_head(map, list[k], before[k]);
	}
	return err;
}

/* ---- Unmapping: frames move back to the pool ---- */

int seg_unmap(struct mapping *map, size_t i, struct seg **list, unsigned n)
{
	int err = n == 1 || map->engine->is_one(map_slot(map, i), map_slots_len(map, i, n)) ? 0 :
		  -EFAULT;

	huge_blocks_note_single(map, list[0]);
	if (!err)
		err = unmap_frames(map, i, list[0], n);
	if (!err)
		add(map->stat.evictions, n);
	return err;
}

int seg_drop(struct mapping *map, size_t i, struct seg *s)
{
	int err;

	if (!frames_are_copied(map->frames))
		return seg_unmap(map, i, &s, 1);
	err = map->engine->discard(map_slot(map, i), map_slot_len(map, i));
	if (!err)
		add(map->stat.evictions, 1);
	return err;
}

/* The list for clean segments that become inactive. */
static enum inactive clean_list(const struct mapping *map)
{
	return readahead_is_in_order(map) ? INACTIVE_FIRST : INACTIVE_CLEAN;
}

int seg_deactivate(struct mapping *map, size_t i, struct seg *s)
{
	int err = seg_unmap(map, i, &s, 1);

	if (err) {
		seg_put_back(map, s);
		return err;
	}
	seg_change(s, SEG_WRITABLE, SEG_INACTIVE);
	cache_deactivate(&map->member, s, seg_has(s, SEG_DIRTY) ? INACTIVE_DIRTY : clean_list(map));
	return 0;
}

int seg_deactivate_cluster(struct mapping *map, size_t i, struct seg **list, unsigned n)
{
	int err = seg_unmap(map, i, list, n);

	if (err)
		return err;
	for (unsigned k = 0; k < n; k++)
		seg_change(list[k], 0, SEG_INACTIVE);
	cache_deactivate_all(&map->member, list, n, clean_list(map));
	return 0;
}

void seg_put_back(struct mapping *map, struct seg *s)
{
	cache_insert(&map->member, s, seg_has(s, SEG_DIRTY) ? UMMAP_EV_WRITE : UMMAP_EV_READ);
}

/* Copies a resident segment to a frame, and maps that in place of the old one. The segment loses
 * its rights before the copy, so that no thread stores to a page that is copied already, and the
 * frame gets its final rights before it is visible. *mapped: whether the frame is in the slot. */
static bool move_resident(struct mapping *map, size_t i, struct seg *s, uint32_t frame,
			  bool *mapped)
{
	bool writable = seg_has(s, SEG_WRITABLE);

	if (unmap_frames(map, i, s, 1) < 0)
		return false;
	memcpy(frame_addr(frame), frame_addr(s->frame), map_slot_len(map, i));
	*mapped = map_frame(map, i, frame, frame_addr(frame), writable) == 0;
	return true;
}

uint32_t seg_move(struct mapping *map, size_t i, struct seg *s, uint32_t frame)
{
	uint32_t old = s->frame;
	bool mapped = true;

	if (make_frame_writable(map, frame) < 0)
		return FRAME_NONE;
	frame_use_blank(frame);
	if (seg_has(s, SEG_INACTIVE))
		memcpy(frame_addr(frame), frame_addr(old), map_slot_len(map, i));
	else if (!move_resident(map, i, s, frame, &mapped))
		return FRAME_NONE;
	/* Threads that look for a segment to evict read it without the lock. */
	__atomic_store_n(&s->frame, frame, __ATOMIC_RELAXED);
	if (!mapped) {
		cache_remove(&map->member, s);
		seg_change(s, SEG_WRITABLE, SEG_INACTIVE);
		cache_deactivate(&map->member, s, seg_has(s, SEG_DIRTY) ? INACTIVE_DIRTY :
				 INACTIVE_CLEAN);
	}
	return old;
}

/* ---- Faults, pins, eviction, migration ---- */

/* Whether segment s can become resident together with `first`, which was read ahead. */
static bool is_read_ahead(const struct seg *first, const struct seg *s)
{
	(void)first;
	return seg_has(s, SEG_VALID | SEG_INACTIVE | SEG_AHEAD) && !seg_has(s, SEG_POISONED);
}

/* Maps a segment that was read ahead and its cluster, which the program accesses next. Returns
 * false if the segment must be mapped alone. */
static bool return_cluster(struct mapping *map, size_t i, struct seg *s)
{
	struct seg *list[MAX_CLUSTER_SEGMENTS] = { s };
	unsigned n = !is_read_ahead(s, s) ? 1 :
		     map_lock_cluster(map, i, list, MAX_CLUSTER_SEGMENTS, is_read_ahead);
	bool done = false;

	if (n > 1) {
		for (unsigned k = 0; k < n; k++)
			cache_remove(&map->member, list[k]);
		done = map_cluster(map, i, list, n) == 0;
		for (unsigned k = 0; k < n && !done; k++)
			cache_deactivate(&map->member, list[k], INACTIVE_AHEAD);
	}
	map_unlock_cluster(map, i, list, n);
	return done;
}

static int return_inactive(struct mapping *map, size_t i, struct seg *s, bool write)
{
	bool ahead = seg_has(s, SEG_AHEAD);
	int err = 0;

	if (write)
		commit_keep(map, i, s, frame_addr(s->frame));
	if (!ahead || write || !return_cluster(map, i, s)) {
		cache_remove(&map->member, s);
		err = map_segment(map, i, s, frame_addr(s->frame), write);
		if (err)
			cache_deactivate(&map->member, s, seg_has(s, SEG_DIRTY) ? INACTIVE_DIRTY :
					 ahead ? INACTIVE_AHEAD : INACTIVE_CLEAN);
	}
	if (ahead && !err && neighbors_come(map))
		neighbors_return(map, i);
	else if (ahead && !err)
		evict_prepare_readahead(map);
	return err;
}

/* Maps an absent segment whose bytes were read to `from` (as for map_frame); or gives its frame
 * back if that has failed (err: -errno). */
static int install_segment(struct mapping *map, size_t i, struct seg *s, uint32_t frame, char *from,
			   bool write, int err)
{
	if (!err) {
		tiering_set_frame(map, s, frame);
		seg_change(s, 0, SEG_VALID);
		map_touch(map, i);
		err = map_segment(map, i, s, from, write);
	}
	if (err) {
		map_await(map, s);
		seg_change(s, SEG_VALID, 0);
		evict_return_frame(map, frame);
	}
	return err;
}

static int load_segment(struct mapping *map, size_t i, struct seg *s, bool write)
{
	uint32_t frame = evict_take_frame(map, false);
	char *scratch = NULL, *buf;
	int err;

	if (frame == FRAME_NONE)
		return -ENOMEM;
	if (neighbors_come(map) && neighbors_load(map, i, s, frame, write))
		return write ? allow_stores(map, i, s, &map->stat.write_faults) : 0;
	recycle_note_load(map, s);
	/* If the engine copies the bytes to the slot, the frame needs no memory in the pool. */
	if (frames_are_copied(map->frames) && map->seg_size <= SCRATCH_SIZE &&
	    frame_is_blank(frame))
		scratch = scratch_take(SCRATCH_SMALL, &errno);
	buf = scratch ? scratch : frame_addr(frame);
	err = scratch ? 0 : make_frame_writable(map, frame);
	if (!err)
		err = read_segment(map, i, s, buf, !scratch && frame_use_blank(frame));
	err = install_segment(map, i, s, frame, buf, write, err);
	if (scratch)
		scratch_give(SCRATCH_SMALL, &errno, scratch);
	return err;
}

/* Makes a segment that the caller has locked resident, and writable if `write`. */
static int serve_locked(struct mapping *map, size_t i, struct seg *s, bool write)
{
	if (!seg_has(s, SEG_VALID))
		return load_segment(map, i, s, write);
	if (seg_has(s, SEG_INACTIVE))
		return return_inactive(map, i, s, write);
	return upgrade_segment(map, i, s, write);
}

int seg_fault(struct mapping *map, size_t i, bool write)
{
	struct seg *s = map_seg(map, i);
	int err;

	if (!seg_trylock(s)) {
		messages_pass_turn(map->engine);
		seg_lock(s);
	}
	do
		err = serve_locked(map, i, s, write);
	while (err == -ENOMEM && evict_unmap_for_vma_limit(map));
	if (write && !err && neighbors_come(map))
		neighbors_note_store(map, i);
	if (map->tiers && !err)
		tiering_note_use(map, i, s);
	map_unlock(map, i, s);
	return err;
}

int seg_load_begin(struct mapping *map, size_t i, bool write, struct seg_load *l)
{
	struct seg *s = map_seg(map, i);
	uint32_t frame;
	int err;

	if (!seg_trylock(s))
		return -EAGAIN;
	*l = (struct seg_load){ .map = map, .i = i, .write = write };
	frame = seg_has(s, SEG_VALID) ? FRAME_NONE : evict_take_frame(map, true);
	if (seg_has(s, SEG_VALID))
		err = serve_locked(map, i, s, write);
	else if (frame == FRAME_NONE)
		err = -EAGAIN;
	else if (recycle_note_load(map, s), seg_request(map, i, s, frame_addr(frame),
						   frame_use_blank(frame), &l->io))
		err = 1;
	else
		err = install_segment(map, i, s, frame, frame_addr(frame), write, 0);
	l->frame = frame;
	if (err != 1)
		map_unlock(map, i, s);
	return err;
}

int seg_load_end(struct seg_load *l)
{
	io_count(&l->map->stat.io, &l->io, 1);
	return install_segment(l->map, l->i, l->io.owner, l->frame, frame_addr(l->frame), l->write,
			       l->io.res);
}

int seg_pin(struct mapping *map, size_t i, bool write)
{
	struct seg *s = map_seg(map, i);
	int err = 0;

	seg_lock(s);
	if (seg_pins(s) == SEG_PINS_MAX)
		err = -EAGAIN;
	else if (!seg_has(s, SEG_VALID) || seg_has(s, SEG_INACTIVE) ||
		 (write && !seg_has(s, SEG_WRITABLE)))
		err = serve_locked(map, i, s, write);
	if (!err) {
		if (seg_pins(s) == 0)
			map_count_pin(map, s, true);
		seg_set_pins(s, seg_pins(s) + 1);
		seg_change(s, 0, write ? SEG_DEVICE : 0);
	}
	map_unlock(map, i, s);
	return err;
}

void seg_unpin(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);

	seg_lock(s);
	if (seg_pins(s) > 0) {
		seg_set_pins(s, seg_pins(s) - 1);
		if (seg_pins(s) == 0) {
			seg_change(s, SEG_DEVICE, 0);
			map_count_pin(map, s, false);
		}
	}
	map_unlock(map, i, s);
}

static int evict_clean(struct mapping *map, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_DIRTY) || seg_pins(s))
		return 0;
	cache_remove(&map->member, s);
	if (!seg_has(s, SEG_INACTIVE) && seg_drop(map, i, s) < 0) {
		seg_put_back(map, s);
		return 0;
	}
	frame_free_to_system(evict_release_frame(map, s));
	return 0;
}

void seg_evict(struct mapping *map, size_t first, size_t last)
{
	map_for_valid(map, first, last, evict_clean);
	pagecache_unmap(map, first, last);
}

/* Makes a locked segment as if it had never been accessed. Its contents are not written, not read
 * again, and not counted as lost if a flush fails. */
static int discard_segment(struct mapping *map, size_t i, struct seg *s)
{
	int err = 0;

	if (seg_pins(s))
		return -EBUSY;
	if (seg_has(s, SEG_VALID)) {
		cache_remove(&map->member, s);
		if (!seg_has(s, SEG_INACTIVE))
			err = seg_drop(map, i, s);
		if (err) {
			seg_put_back(map, s);
			return err;
		}
	}
	seg_change(s, SEG_STORED, 0);
	seg_set_backing(s, map->current);
	if (seg_has(s, SEG_VALID))
		frame_free(evict_release_frame(map, s));
	return 0;
}

int seg_discard(struct mapping *map, size_t first, size_t last)
{
	int err = pagecache_unmap(map, first, last), busy = 0;

	for (size_t i = map_next_touched(map, first); i < last && !err;
	     i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		seg_lock(s);
		err = discard_segment(map, i, s);
		map_unlock(map, i, s);
		if (err == -EBUSY) {
			busy = err;
			err = 0;
		}
	}
	return err ? err : busy;
}

/* Loads an absent segment, and makes it inactive. */
static int load_inactive(struct mapping *map, size_t i, struct seg *s)
{
	uint32_t frame = evict_take_frame(map, false);
	int err;

	if (frame == FRAME_NONE)
		return -ENOMEM;
	err = make_frame_writable(map, frame);
	if (!err)
		err = read_segment(map, i, s, frame_addr(frame), frame_use_blank(frame));
	if (err) {
		evict_return_frame(map, frame);
		return err;
	}
	tiering_set_frame(map, s, frame);
	seg_change(s, 0, SEG_VALID | SEG_INACTIVE);
	map_touch(map, i);
	cache_deactivate(&map->member, s, INACTIVE_FIRST);
	return 0;
}

int seg_migrate(struct mapping *map, size_t first, size_t last, bool descending)
{
	int err = 0;

	for (size_t n = first; n < last && !err; n++) {
		size_t i = descending ? last - 1 - (n - first) : n;
		struct seg *s = map_seg(map, i);

		if (seg_backing(s) == map->current)
			continue;
		seg_lock(s);
		if (seg_backing(s) != map->current && !seg_has(s, SEG_VALID))
			err = load_inactive(map, i, s);
		if (!err && seg_backing(s) != map->current)
			err = writeback_locked(map, i, descending ? i + 1 : last);
		map_unlock(map, i, s);
	}
	return err;
}

static int make_inactive(struct mapping *map, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_INACTIVE))
		return 0;
	cache_remove(&map->member, s);
	return seg_deactivate(map, i, s);
}

/* Whether segment s is in this store at this offset, and needs no migration. */
static bool is_in_store(const struct mapping *map, const struct seg *s, const struct store *store,
			uint64_t offset)
{
	const struct backing *t = &map->backings[seg_backing(s)];

	return seg_backing(s) == map->current && t->store == store && t->offset == offset;
}

/* Marks an inactive segment as dirty that has gained `more` bytes after its first `len` bytes: no
 * store may have all of its contents. With UMMAP_WRITERS, bytes that it has gained from its own
 * store (`own`) need not be written; if the segment is going to migrate, all bytes are written. */
static int mark_gain_dirty(struct mapping *map, size_t i, struct seg *s, size_t len, size_t more,
			   bool own)
{
	int err;

	if (map->writers && own && !twin_has(map, i))
		return 0;
	err = make_twin(map, i, frame_addr(s->frame));
	if (err)
		return err;
	if (map->writers)
		memcpy(twin_addr(map, i) + len, frame_addr(s->frame) + len, more);
	cache_remove(&map->member, s);
	seg_change(s, SEG_AHEAD, 0);
	map_mark_dirty(map, i, s);
	cache_deactivate(&map->member, s, INACTIVE_DIRTY);
	return 0;
}

int seg_lengthen(struct mapping *map, size_t size, struct store *store, uint64_t offset)
{
	size_t i = map->segs - 1, len = map_len(map, i), more = size - map->size;
	struct seg *s = map_seg(map, i);
	struct ummap_io io = { .op = UMMAP_IO_READ, .len = more, .off = offset + map->size };
	bool zeros;
	int err = 0;

	if (!more)
		return 0;
	seg_lock(s);
	/* A segment of zeros that was never stored to stays blank, and is not written. */
	zeros = !map_reads(map, s) && !map->backings[map->current].read && !seg_has(s, SEG_DIRTY);
	if (!seg_has(s, SEG_VALID) && zeros) {
		map_unlock(map, i, s);
		return 0;
	}
	if (!seg_has(s, SEG_VALID))
		err = load_inactive(map, i, s);
	else if (!seg_has(s, SEG_INACTIVE))
		err = make_inactive(map, i, s);
	if (!err)
		err = make_frame_writable(map, s->frame);
	if (!err) {
		io.buf = frame_addr(s->frame) + len;
		memset(io.buf, 0, more);
		if (map->backings[map->current].read)
			err = io_run(store, &io, 1, false, &map->stat.io);
	}
	if (!err && map->writable && !zeros)
		err = mark_gain_dirty(map, i, s, len, more, is_in_store(map, s, store, offset));
	map_unlock(map, i, s);
	return err;
}

static int ignore_segment(struct mapping *map, size_t i, struct seg *s)
{
	(void)map;
	(void)i;
	(void)s;
	return 0;
}

void seg_hide(struct mapping *map)
{
	cache_hide(&map->member, true);
	/* A thread that found a segment earlier and works on it holds its lock: wait for it. */
	map_for_valid(map, 0, map->segs, ignore_segment);
}

void seg_show(struct mapping *map)
{
	cache_hide(&map->member, false);
}

int seg_unmap_all(struct mapping *map, size_t first, size_t last)
{
	return map_for_valid(map, first, last, make_inactive);
}
