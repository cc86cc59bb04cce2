/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From written to durable. A flush that fails may have lost all that was written since the last good one, and the next
 * may succeed for nothing: storage forgets. So each write is stamped with the generation that it ended in, which a flush
 * begins anew. A write that met flush number n has the stamp n or n + 1, and so these are open until that flush has
 * ended. If it fails, their segments count as changed again; those that have left memory since cannot be written again,
 * and the mapping never calls itself durable any more, unless the driver says that it has lost nothing.
 * Locks: `turn` across a flush, under it those of segments, and `lock`, a leaf, around `settled` and `left`.
 */
#include "paging/flush.h"

static bool is_open(const struct set *set, const struct seg *s)
{
	return seg_has(s, SEG_STORED) && !seg_has(s, SEG_DIRTY) &&
	       ((seg_time(s) - set->flush.settled) & SEG_TIME_MASK) <= 1;
}

/* The time of an unchanged segment says which flush makes it durable. */
void flush_note(struct set *set, struct seg *s)
{
	seg_set_time(s, set->flush.generation);
}

void flush_leaves(struct set *set, const struct seg *s)
{
	/* A first look without the lock: what is settled stays so. */
	if (!is_open(set, s))
		return;
	futex_lock(&set->flush.lock);
	if (is_open(set, s))
		set->flush.left[seg_time(s) & 1] += set->seg_size;
	futex_unlock(&set->flush.lock);
}

void flush_again(struct set *set, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_STANDBY))
		cache_remove(&set->member, s);
	set_mark_dirty(set, i, s);
	if (seg_has(s, SEG_STANDBY))
		cache_stand(&set->member, s, STANDBY_DIRTY);
	else
		cache_touch(&set->member, s, UMMAP_EV_DIRTIED);
}

void flush_lose(struct set *set, uint64_t bytes, int err)
{
	if (!bytes)
		return;
	set->flush.error = -err;
	set->flush.lost += bytes;
}

/* A flush failed, and nobody can tell what it lost. What was read ahead has left memory before, and is counted. */
static void doubt(struct set *set)
{
	for (size_t i = set_next(set, set->touched, 0); i < set->segs; i = set_next(set, set->touched, i + 1)) {
		struct seg *s = set_seg(set, i);

		seg_lock(s);
		if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_AHEAD) && is_open(set, s))
			flush_again(set, i, s);
		seg_unlock(s);
	}
}

/* The flush of the oldest open generation has ended; kept: it failed, but the driver has all that it was given. */
static void settle(struct set *set, int err, bool kept)
{
	uint64_t *left = set->flush.left, gone;

	/* Once it is through, what was open is changed again, or has left and is counted. Where others write, too, it is not
	 * known any more which bytes were stored, and those between them must not be written. */
	if (err && !set->writers)
		doubt(set);
	futex_lock(&set->flush.lock);
	gone = err && !kept ? left[0] + left[1] : 0;
	/* The next flush is to make that durable, too. */
	if (kept)
		left[(set->flush.settled + 1) & 1] += left[set->flush.settled & 1];
	left[set->flush.settled++ & 1] = 0;
	if (gone)
		left[0] = left[1] = 0;
	futex_unlock(&set->flush.lock);
	flush_lose(set, err && !kept && set->writers ? set->size : gone, err);
}

/* Those count syncs, also such as have nothing to write. */
static bool has_epochs(struct set *set)
{
	uint64_t oldest, newest;

	return io_epoch(set->targets[set->current].store, &oldest, &newest) == 0;
}

int flush(struct set *set)
{
	bool kept;
	int err = 0;

	/* Whoever comes second waits for the flush that the first has begun. */
	futex_lock(&set->flush.turn);
	if (atomic_exchange(&set->flush.due, false) || has_epochs(set)) {
		set->flush.generation++;
		err = io_flush(set->targets[set->current].store, &kept, &set->stat.io);
		settle(set, err, kept);
		if (err) {
			set->flush.due = true;
			set->flush.failed++;
		}
	}
	futex_unlock(&set->flush.turn);
	return err;
}

/* All that was written stays due. */
int flush_background(struct set *set)
{
	int err;

	return io_push(set->targets[set->current].store, &err) ? err : flush(set);
}

void flush_forget(struct set *set, bool same)
{
	set->flush.lost = 0;
	if (same)
		return;
	set->flush.due = false;
	set->flush.left[0] = set->flush.left[1] = 0;
}
