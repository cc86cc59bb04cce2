/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From written to durable. A failed flush may have lost all that was written since the last successful one, and the
 * next one may succeed without it: storage reports a loss once. So each write is stamped with the generation in which
 * it ended, and each flush begins a new one. A write that overlaps flush number n has the stamp n or n + 1, so both
 * generations are open until that flush has ended. If it fails, their segments are dirty again; those that were
 * reclaimed since cannot be written again, and no sync of the mapping succeeds any more, unless the driver says that it
 * has lost nothing. Locks: `turn` across a flush, under it those of segments, and `lock`, a leaf, around `settled` and
 * `left`.
 */
#include "paging/sync/flush.h"

static bool is_open(const struct mapping *map, const struct seg *s)
{
	return seg_has(s, SEG_STORED) && !seg_has(s, SEG_DIRTY) &&
	       ((seg_time(s) - map->sync.flush.settled) & SEG_TIME_MASK) <= 1;
}

/* The time of a clean segment says which flush makes it durable. */
void flush_note(struct mapping *map, struct seg *s)
{
	seg_set_time(s, map->sync.flush.generation);
}

void flush_leaves(struct mapping *map, const struct seg *s)
{
	/* A first look without the lock: what is settled stays so. */
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
	if (!bytes)
		return;
	map->sync.flush.error = -err;
	map->sync.flush.lost += bytes;
}

/* A flush has failed, and which of the bytes are durable is unknown: resident and inactive segments
 * become dirty again. Those that were reclaimed are counted. */
static void doubt(struct mapping *map)
{
	for (size_t i = map_next_touched(map, 0); i < map->segs; i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		seg_lock(s);
		if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_AHEAD) && is_open(map, s))
			flush_again(map, i, s);
		seg_unlock(s);
	}
}

/* The flush of the oldest open generation has ended; kept: it failed, but the driver has all that it was given. */
static void flush_end(struct mapping *map, int err, bool kept)
{
	uint64_t *left = map->sync.flush.left, gone;

	/* Once it is through, what was open is dirty again, or has left and is counted. Where others write, too, it is not
	 * known any more which bytes were stored, and those between them must not be written. */
	if (err && !map->writers)
		doubt(map);
	futex_lock(&map->sync.flush.lock);
	gone = err && !kept ? left[0] + left[1] : 0;
	/* The next flush is to make that durable, too. */
	if (kept)
		left[(map->sync.flush.settled + 1) & 1] += left[map->sync.flush.settled & 1];
	left[map->sync.flush.settled++ & 1] = 0;
	if (gone)
		left[0] = left[1] = 0;
	futex_unlock(&map->sync.flush.lock);
	flush_lose(map, err && !kept && map->writers ? map->size : gone, err);
}

/* Those count syncs, also such as have nothing to write. */
static bool has_epochs(struct mapping *map)
{
	uint64_t oldest, newest;

	return io_epoch(map->backings[map->current].store, &oldest, &newest) == 0;
}

int flush(struct mapping *map)
{
	bool kept;
	int err = 0;

	/* Whoever comes second waits for the flush that the first has begun. */
	futex_lock(&map->sync.flush.turn);
	if (atomic_exchange(&map->sync.flush.due, false) || has_epochs(map)) {
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

/* All that was written stays due. */
int flush_background(struct mapping *map)
{
	int err;

	return io_push(map->backings[map->current].store, &err) ? err : flush(map);
}

void flush_forget(struct mapping *map, bool same)
{
	map->sync.flush.lost = 0;
	if (same)
		return;
	map->sync.flush.due = false;
	map->sync.flush.left[0] = map->sync.flush.left[1] = 0;
}
