/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sync of a mapping: it migrates segments of the older backing store, writes all changes, and
 * makes them durable by a flush.
 *
 * A failed flush may have lost everything that was written since the last successful one, and the
 * next flush may succeed without it, because storage reports a loss once. Therefore, each write is
 * stamped with the generation in which it ended, and each flush begins a new generation. A write
 * that overlaps flush number n has the stamp n or n + 1, so both generations are open until that
 * flush has ended. If it fails, their segments are dirty again. Those that were reclaimed cannot be
 * written again, and no later sync of the mapping succeeds, unless the driver says that it has lost
 * nothing.
 *
 * Locks: `sync.lock` is held during an ordered migration, and while the older store is closed.
 * `sync.flush.turn` is held across a flush, and under it the locks of segments. `sync.flush.lock`,
 * a leaf lock, protects `settled` and `left`.
 */
#include "paging/sync/sync.h"

#include "base/log.h"
#include "paging/sync/commit.h"
#include "paging/sync/guess.h"
#include "paging/mapping/inplace.h"
#include "paging/mapping/lock.h"
#include "paging/fault/segment.h"
#include "paging/fault/stall.h"
#include "paging/sync/writeback.h"

#include <string.h>

/* ---- Flush ---- */

bool flush_is_open(const struct mapping *map, const struct seg *s, uint64_t time)
{
	return seg_has(s, SEG_STORED) &&
	       ((time - map->sync.flush.settled) & SEG_TIME_MASK) <= 1;
}

static bool is_open(const struct mapping *map, const struct seg *s)
{
	return !seg_has(s, SEG_DIRTY) && flush_is_open(map, s, seg_time(s));
}

void flush_leaves(struct mapping *map, const struct seg *s)
{
	/* The first check needs no lock, because a settled generation stays settled. */
	if (!is_open(map, s))
		return;
	futex_lock(&map->sync.flush.lock);
	if (is_open(map, s))
		map->sync.flush.left[seg_time(s) & 1] += map->seg_size;
	futex_unlock(&map->sync.flush.lock);
}

void flush_again(struct mapping *map, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_INACTIVE))
		cache_remove(&map->member, s);
	map_mark_dirty(map, i, s);
	if (seg_has(s, SEG_INACTIVE))
		cache_deactivate(&map->member, s, INACTIVE_DIRTY);
	else
		cache_touch(&map->member, s, UMMAP_EV_DIRTIED);
}

/* Records that bytes were written, did not become durable, and cannot be written again. */
static void lose_bytes(struct mapping *map, uint64_t bytes, int err)
{
	map->sync.flush.error = -err;
	map->sync.flush.lost += bytes;
}

static bool is_valid(const struct mapping *map, size_t i, const struct seg *s)
{
	(void)map;
	(void)i;
	return seg_has(s, SEG_VALID);
}

/* A flush has failed, and which of the bytes are durable is unknown: resident and inactive segments
 * become dirty again. Those that were reclaimed are counted. */
static void redirty_segments(struct mapping *map)
{
	for (size_t i = map_next_touched(map, 0); i < map->segs; i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		/* flush_leaves has counted an absent segment. A thread that loads one has its lock,
		 * and may wait for the end of a commit, whose worker is the caller. */
		if (!map_lock_if(map, i, s, is_valid))
			continue;
		if (!seg_has(s, SEG_AHEAD) && is_open(map, s))
			flush_again(map, i, s);
		else if (seg_has(s, SEG_DIRTY))
			guess_note_failure(map, s);
		seg_unlock(s);
	}
}

/* The flush of the oldest open generation has ended. kept: it failed, but the driver still has all
 * that it was given. */
static void flush_end(struct mapping *map, int err, bool kept)
{
	uint64_t *left = map->sync.flush.left, gone;

	/* Afterwards, the segments of the open generations are dirty again or were counted when
	 * they were reclaimed. If other mappings write to the same bytes, it is unknown which bytes
	 * were stored here, and the bytes between them must not be written. */
	if (err && !map->writers)
		redirty_segments(map);
	futex_lock(&map->sync.flush.lock);
	gone = err && !kept ? left[0] + left[1] : 0;
	/* The next flush covers the bytes that the driver has kept. */
	if (kept)
		left[(map->sync.flush.settled + 1) & 1] += left[map->sync.flush.settled & 1];
	left[map->sync.flush.settled++ & 1] = 0;
	if (gone)
		left[0] = left[1] = 0;
	futex_unlock(&map->sync.flush.lock);
	if (err && !kept && map->writers)
		gone = map->size;
	if (gone)
		lose_bytes(map, gone, err);
}

/* Whether the driver counts syncs, so that it needs a flush even if nothing was written. */
static bool counts_syncs(struct mapping *map)
{
	uint64_t oldest, newest;

	return io_epoch(map->backings[map->current].store, &oldest, &newest) == 0;
}

int flush_written(struct mapping *map)
{
	bool kept;
	int err = 0;

	/* A second thread waits for the flush that the first one has begun. */
	futex_lock(&map->sync.flush.turn);
	if (atomic_exchange(&map->sync.flush.due, false) || counts_syncs(map)) {
		map->sync.flush.generation++;
		err = io_flush(map->backings[map->current].store, &kept, &map->stat.io);
		flush_end(map, err, kept);
		if (err) {
			map->sync.flush.due = true;
			map->sync.flush.failed++;
		}
	}
	futex_unlock(&map->sync.flush.turn);
	return err;
}

int flush_background(struct mapping *map)
{
	int err;

	return io_push(map->backings[map->current].store, &err) ? err : flush_written(map);
}

void flush_forget(struct mapping *map, bool same)
{
	map->sync.flush.lost = 0;
	if (same)
		return;
	map->sync.flush.due = false;
	map->sync.flush.left[0] = map->sync.flush.left[1] = 0;
}

/* ---- Sync ---- */

void sync_close_older(struct mapping *map)
{
	for (unsigned i = 0; i < SEG_BACKINGS; i++) {
		struct store *store = map->backings[i].store;

		if (i == map->current || !store)
			continue;
		/* The store is removed first: a child that is forked now would close it again. */
		map->backings[i].store = NULL;
		lock_drop(map->backings[i].lock);
		map->backings[i].lock = NULL;
		io_close(store);
	}
	map_set_migration(map, MIGRATE_NONE);
}

void sync_explain(const struct mapping *map, int err)
{
	const struct flushing *f = &map->sync.flush;

	if (*fail_message())
		return;
	if (flush_has_lost(map) && map->writers) {
		fail(EIO, "cannot make changes to '%s' durable: %s. The store may have lost "
		     "written data, and the library no longer knows which bytes (UMMAP_WRITERS). "
		     "Try to take the contents from a copy or to compute them again, and end this "
		     "mapping without a sync", map->name, strerror(f->error));
		return;
	}
	if (flush_has_lost(map)) {
		fail(EIO, "cannot make %llu bytes of changes to '%s' durable: %s. The store may "
		     "have lost them, and they have left memory, so they cannot be written again. "
		     "All other changes are written. Try to take the contents from a copy or to "
		     "compute them again, and end this mapping without a sync",
		     (unsigned long long)min_size(f->lost, map->size), map->name,
		     strerror(f->error));
		return;
	}
	fail(-err, "cannot make changes to '%s' durable: %s. They are kept in memory. Try %s",
	     map->name, strerror(-err),
	     stall_lacks_space(-err) ?
	     "to free space on the disk, or a larger limit in the URI, and sync again" :
	     err == -EFBIG ?
	     "a larger RLIMIT_FSIZE (ulimit -f), or another file system, and sync again" :
	     "to sync again");
}

static int complete_in_order(struct mapping *map)
{
	int err = 0;

	futex_lock(&map->sync.lock);
	if (map_in_order(map))
		err = seg_migrate(map, 0, map->segs, map->migration == MIGRATE_DESCENDING);
	if (!err && map_in_order(map))
		map_set_migration(map, MIGRATE_ANY);
	futex_unlock(&map->sync.lock);
	return err;
}

int sync_migrate(struct mapping *map, size_t first, size_t last)
{
	if (map_in_order(map))
		return complete_in_order(map);
	return seg_migrate(map, first, last, false);
}

int sync_changes(struct mapping *map, size_t first, size_t last)
{
	uint64_t failed;
	int err;

	/* A flush of another thread may fail between the write and the flush here, which then
	 * succeeds without the bytes that the failed one has lost. They must be written again. */
	do {
		failed = map->sync.flush.failed;
		err = writeback_range(map, first, last, UINT64_MAX);
		if (!err)
			err = flush_written(map);
	} while (!err && failed != map->sync.flush.failed);
	/* Without an error, everything is durable that was not lost before. */
	return flush_has_lost(map) ? -EIO : err;
}

int sync_segments(struct mapping *map)
{
	int err = map->migration ? sync_migrate(map, 0, map->segs) : 0;

	futex_lock(&map->sync.lock);
	if (!err)
		err = sync_changes(map, 0, map->segs);
	if (!err && map->migration)
		sync_close_older(map);
	futex_unlock(&map->sync.lock);
	return err;
}

bool sync_some(struct mapping *map, size_t *at, size_t last)
{
	uint64_t until = sys_now() + SYNC_PART_MS;
	int err = 0;

	if (commit_await_for(map, SYNC_PART_MS))
		return true;
	if (map->in_place || map_in_order(map))
		return false;
	last = min_size(last, map->segs);
	do {
		size_t end = map->migration ? min_size(*at + writeback_run(map), last) : last;

		if (map->migration && *at < end)
			err = seg_migrate(map, *at, end, false);
		if (!err)
			err = writeback_some(map, at, end, until);
	} while (!err && *at < last && sys_now() < until);
	if (err)
		writeback_keep_error(map, err);
	return !err && *at < last;
}

int sync_all(struct mapping *map)
{
	int err, earlier;

	commit_await(map);
	err = map->in_place ? inplace_sync(map, 0, map->size) : sync_segments(map);
	earlier = writeback_take_error(map);
	if (!err && earlier && !map->in_place)
		return fail(-earlier, "a transfer of '%s' failed before its repetition succeeded: "
			    "%s. All changes are durable now. Try another sync to see whether the "
			    "storage works", map->name, strerror(-earlier));
	err = err ? err : earlier;
	if (err)
		sync_explain(map, err);
	return err;
}

int sync_write(struct mapping *map)
{
	int err;

	commit_await(map);
	/* The older store of a migration is closed, so the current one has to be durable. */
	if (map->in_place || map->migration)
		return map->in_place ? 0 : sync_all(map);
	err = writeback_range(map, 0, map->segs, UINT64_MAX);
	if (err)
		sync_explain(map, err);
	return err;
}
