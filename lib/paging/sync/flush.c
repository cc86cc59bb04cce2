/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes written bytes durable. A failed flush may have lost everything that was written since the
 * last successful one, and the next flush may succeed without it, because storage reports a loss
 * once. Therefore, each write is stamped with the generation in which it ended, and each flush
 * begins a new generation. A write that overlaps flush number n has the stamp n or n + 1, so both
 * generations are open until that flush has ended. If it fails, their segments are dirty again.
 * Those that were reclaimed cannot be written again, and no later sync of the mapping succeeds,
 * unless the driver says that it has lost nothing.
 *
 * Locks: `turn` is held across a flush, and under it the locks of segments. `lock`, a leaf lock,
 * protects `settled` and `left`.
 */
#include "paging/sync/flush.h"

#include "paging/sync/commit.h"
#include "paging/sync/guess.h"
#include "paging/sync/writeback.h"

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

void flush_lose(struct mapping *map, uint64_t bytes, int err)
{
	map->sync.flush.error = -err;
	map->sync.flush.lost += bytes;
}

/* A flush has failed, and which of the bytes are durable is unknown: resident and inactive segments
 * become dirty again. Those that were reclaimed are counted. */
static void redirty_segments(struct mapping *map)
{
	for (size_t i = map_next_touched(map, 0); i < map->segs; i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		seg_lock(s);
		if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_AHEAD) && is_open(map, s))
			flush_again(map, i, s);
		else if (seg_has(s, SEG_VALID | SEG_DIRTY))
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
		flush_lose(map, gone, err);
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
		/* Changes that are newer than a commit in flight become writable by this flush. A
		 * thread that lacks memory waits for it. */
		if (commit_runs(map))
			writeback_begin();
		err = io_flush(map->backings[map->current].store, &kept, &map->stat.io);
		if (commit_runs(map))
			writeback_end();
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
