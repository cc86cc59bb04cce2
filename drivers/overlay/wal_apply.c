/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When and how the commits of a log are applied to the store. A commit may be applied if no older
 * commit may be opened any more: up to the floor (overlay.h: orders 5 and 9).
 */
#include "wal.h"

#include "common/futex.h"
#include "common/minmax.h"

#include <string.h>

#define MIN_BOUND ((uint64_t)256 << 20)     /* bytes of the log */
#define BOUND_FACTOR 4                      /* times the size of the store */


uint64_t wal_fixed_bound;

static struct wal *wal_of(struct overlay *o)
{
	return (struct wal *)o;
}

/* Applies all commits that may be applied. Returns whether there were any, or a negative errno
 * value. One thread at a time calls it. */
static int apply_commits(struct overlay *o)
{
	uint64_t number, block;
	int err;

	futex_lock(&o->lock);
	number = o->newest.floor;
	if (number > wal_of(o)->home)
		o->hold = number;
	futex_unlock(&o->lock);
	if (number <= wal_of(o)->home)
		return 0;
	err = overlay_apply(o, number, &o->store, &block);
	if (err) {
		futex_lock(&o->lock);
		overlay_end_hold(o);
		futex_unlock(&o->lock);
		return err;
	}
	err = overlay_set_home(o, number);
	if (err)
		return err;
	wal_of(o)->home = number;
	return 1;
}

/* Commits that cannot be applied stay in the log, and the next pass tries again. */
static int run_pass(struct overlay *o)
{
	struct wal *w = wal_of(o);
	int applied = apply_commits(o), err;

	if (applied > 0) {
		err = overlay_begin_anew(o);
		applied = err ? err : applied;
	}
	if (applied < 0 && !w->reported)
		notice_give(&o->notice, "wal+: cannot apply the commits of the log '%.150s' to the "
			    "store: %s. They stay in the log, which grows until they are applied",
			    o->file.path, strerror(-applied));
	w->reported = applied < 0;
	return applied;
}

static uint64_t count_waiting(struct overlay *o)
{
	struct overlay_commit floor;
	uint64_t blocks = 0;

	futex_lock(&o->file_lock);
	/* A commit without blocks waits, too: the size of the store may be new. */
	if (overlay_find_commit(o, o->newest.floor, &floor) && floor.number > o->head.home)
		blocks = max_u64(floor.slots - o->head.home_slots, 1);
	futex_unlock(&o->file_lock);
	return blocks * OVERLAY_BLOCK;
}

static void report_full(struct overlay *o)
{
	uint8_t unreported = WAL_FULL_UNREPORTED;
	struct wal *w = wal_of(o);

	if (atomic_compare_exchange_strong(&w->full, &unreported, WAL_FULL_REPORTED))
		notice_give(&o->notice, "wal+: cannot write to the log '%.150s': it has reached "
			    "wal.size=%ju, and the changes between two syncs do not fit. Writes "
			    "fail until they do, and nothing is lost. Try to sync more often, or a "
			    "larger wal.size", o->file.path, (uintmax_t)w->size_limit);
}

const struct background_calls wal_background_calls = {
	.pass = run_pass, .count_waiting = count_waiting, .notify = report_full,
};

bool wal_make_room(struct overlay *o)
{
	return background_make_room(&wal_of(o)->background);
}

/* Called by a write that finds no free slot, maybe in a signal handler. */
bool wal_make_room_for_write(struct overlay *o)
{
	struct wal *w = wal_of(o);
	uint8_t fits = WAL_FITS;

	if (wal_make_room(o))
		return true;
	/* If commits cannot be applied, that is the reason, and is reported. */
	if (w->size_limit < UINT64_MAX && !w->background.failed_at &&
	    atomic_compare_exchange_strong(&w->full, &fits, WAL_FULL_UNREPORTED))
		background_wake(&w->background);
	return false;
}

/* The number of blocks up to which the log may grow while commits can make way. */
static uint64_t bound_blocks(const struct wal *w)
{
	uint64_t size = w->o.size, limit = w->size_limit, bound = limit;

	if (wal_fixed_bound)
		return wal_fixed_bound / OVERLAY_BLOCK;
	if (size <= limit / BOUND_FACTOR)
		bound = BOUND_FACTOR * size;
	return min_u64(max_u64(bound, MIN_BOUND), limit) / OVERLAY_BLOCK;
}

/* A write that has brought the log to its bound waits until commits are applied. */
void wal_wait_at_bound(struct overlay *o)
{
	struct wal *w = wal_of(o);
	bool waits;

	futex_lock(&o->lock);
	waits = o->used >= bound_blocks(w) && o->newest.floor > w->home;
	futex_unlock(&o->lock);
	if (waits)
		wal_make_room(o);
}

int wal_apply_all(struct overlay *o)
{
	int err = o->newest.floor < o->newest.number ? overlay_forget_commits(o) : 0;

	if (!err)
		err = apply_commits(o);
	return err < 0 ? err : 0;
}
