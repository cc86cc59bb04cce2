/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lock: `passing`, outside all locks of the overlay. A thread that waits for a pass must not hold
 * any of them.
 */
#include "background.h"

#include "common/futex.h"
#include "common/minmax.h"
#include "../keys.h"
#include "../thread.h"

#include <string.h>
#include <time.h>

#define REST_MS 1000                        /* commits are applied when they are so old */
#define MUCH ((uint64_t)64 << 20)           /* bytes of waiting blocks that are applied at once */
#define MIN_BOUND ((uint64_t)256 << 20)     /* bytes of the file */
#define BOUND_FACTOR 4                      /* times the size of the store */
#define SENDERS 4                           /* requests to the store at a time */
#define READER_SLEEP_NS 50000
#define MAX_READER_SLEEPS 2000

uint64_t background_fixed_bound;

static struct background *background_of(struct overlay *o)
{
	return &((struct background_handle *)o)->background;
}

static uint64_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec + 1;
}

/* ---- A pass ---- */

/* Applies all commits that may be applied: up to the floor (overlay.h: orders 5 and 9). Returns
 * whether there were any, or a negative errno value. */
static int apply_commits(struct overlay *o)
{
	struct background *b = background_of(o);
	uint64_t number, block;
	int err;

	futex_lock(&o->lock);
	number = o->newest.floor;
	if (number > b->home)
		o->hold = number;
	futex_unlock(&o->lock);
	if (number <= b->home)
		return 0;
	err = overlay_apply(o, number, &o->store, &block);
	if (err) {
		futex_lock(&o->lock);
		overlay_end_hold(o);
		futex_unlock(&o->lock);
		return err;
	}
	err = overlay_set_home(o, number);
	if (!err)
		b->home = number;
	return err ? err : 1;
}

int background_apply_all(struct overlay *o)
{
	int err = o->newest.floor < o->newest.number ? overlay_forget_commits(o) : 0;

	if (!err)
		err = apply_commits(o);
	return err < 0 ? err : 0;
}

/*
 * Waits until the slots that are retired are free: until all readers of both generations have left.
 * The wait is bounded, because a reader may be a thread that is interrupted by a signal handler,
 * which waits for this pass. Returns whether there were such slots, and they are free.
 */
static bool wait_for_readers(struct overlay *o)
{
	const struct timespec pause = { 0, READER_SLEEP_NS };
	unsigned generation = o->generation, changes = 0;
	bool had = false;

	for (int i = 0; i < MAX_READER_SLEEPS; i++) {
		bool is_free;

		futex_lock(&o->lock);
		had |= o->retired[0] != OVERLAY_NO_SLOT || o->retired[1] != OVERLAY_NO_SLOT;
		overlay_reclaim(o);
		is_free = o->retired[0] == OVERLAY_NO_SLOT && o->retired[1] == OVERLAY_NO_SLOT;
		changes += o->generation != generation;
		generation = o->generation;
		futex_unlock(&o->lock);
		if (is_free || changes == 2)
			return had;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Commits that cannot be applied stay in the file, and the next pass tries again. */
static void run_pass(struct overlay *o)
{
	struct background *b = background_of(o);
	int applied = 0, err = 0;
	bool freed;

	futex_lock(&b->passing);
	if (!b->stop)
		applied = apply_commits(o);
	if (applied > 0)
		err = overlay_begin_anew(o);
	futex_unlock(&b->passing);
	freed = wait_for_readers(o);
	err = applied < 0 ? applied : err;
	if (err && !b->reported)
		notice_give(&o->notice, "%s+: cannot apply the commits of the %s '%.150s' to the "
			    "store: %s. They stay in the %s, which grows until they are applied",
			    o->policy->scheme, o->policy->file, o->file.path, strerror(-err),
			    o->policy->file);
	b->reported = err != 0;
	b->failed_at = err ? now_s() : 0;
	b->successes += !err && (applied || freed);
	b->passes++;
	futex_wake(&b->passes, INT32_MAX);
}

/* ---- The thread ---- */

/* The bytes of blocks that a pass would apply. */
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
	struct background *b = background_of(o);
	uint8_t unreported = OVERLAY_FULL_UNREPORTED;

	if (atomic_compare_exchange_strong(&b->full, &unreported, OVERLAY_FULL_REPORTED))
		notice_give(&o->notice, "%s+: cannot write to the %s '%.150s': it has reached "
			    "%s.size=%ju, and the changes since the oldest commit that it keeps do "
			    "not fit. Writes fail until they do, and nothing is lost. Try to sync "
			    "more often, a larger %s.size, or a smaller %s.keep",
			    o->policy->scheme, o->policy->file, o->file.path, o->policy->scheme,
			    (uintmax_t)b->size_limit, o->policy->scheme, o->policy->scheme);
}

static void *run(void *arg)
{
	struct overlay *o = arg;
	struct background *b = background_of(o);
	uint32_t seen = b->news - 1; /* the commits that were found on opening are news */
	uint64_t asked = 0, much = min_u64(b->size_limit / 4, MUCH);

	for (;;) {
		/* The word is read first: a change after this ends the wait. */
		uint32_t news = b->news;
		bool is_quiet = seen == news;
		uint64_t bytes, now_asked;

		report_full(o);
		if (b->stop)
			return NULL;
		seen = news;
		bytes = count_waiting(o);
		now_asked = b->asked;
		if (now_asked != asked || (bytes && (is_quiet || bytes >= much))) {
			asked = now_asked;
			run_pass(o);
			bytes = 0;
		}
		futex_wait(&b->news, seen, bytes ? REST_MS : -1);
	}
}

int background_start(struct overlay *o, uint64_t size_limit, struct ummap_geom *geom)
{
	struct background *b = background_of(o);
	int err;

	b->size_limit = size_limit;
	b->home = o->head.home;
	overlay_gather_crew(o, SENDERS - 1);
	err = thread_start(&b->thread, run, o);
	b->is_running = !err;
	return err ? keys_refuse(geom, -err, "cannot start a thread: %s" KEYS_THREAD_LIMITS,
				 strerror(-err)) : 0;
}

void background_stop(struct overlay *o)
{
	struct background *b = background_of(o);

	if (!b->is_running)
		return;
	b->stop = true;
	background_wake(o);
	pthread_join(b->thread, NULL);
	b->is_running = false;
}

void background_wake(struct overlay *o)
{
	struct background *b = background_of(o);

	b->news++;
	futex_wake(&b->news, 1);
}

/* ---- Writers that need slots ---- */

bool background_make_room(struct overlay *o)
{
	struct background *b = background_of(o);
	uint64_t successes = b->successes;
	uint32_t passes = b->passes;

	/* Hundreds of writers may ask one after the other, and a full disk fails slowly. */
	if (b->failed_at >= now_s())
		return false;
	/* A pass that is under way may have begun too early; the pass after it has not. */
	for (int i = 0; i < 2 && b->successes == successes; i++) {
		b->asked++;
		background_wake(o);
		while (b->passes == passes)
			futex_wait(&b->passes, passes, -1);
		passes = b->passes;
	}
	return b->successes != successes;
}

/* Reports the limit, unless commits cannot be applied: that is the reason then. */
bool background_make_room_for_write(struct overlay *o)
{
	struct background *b = background_of(o);
	uint8_t fits = OVERLAY_FITS;

	if (background_make_room(o))
		return true;
	if (b->size_limit < UINT64_MAX && !b->failed_at &&
	    atomic_compare_exchange_strong(&b->full, &fits, OVERLAY_FULL_UNREPORTED))
		background_wake(o);
	return false;
}

/* The number of slots up to which the file may grow while commits can make way. */
static uint64_t bound_slots(const struct overlay *o, uint64_t limit)
{
	uint64_t bound = o->size <= limit / BOUND_FACTOR ? BOUND_FACTOR * o->size : limit;

	if (background_fixed_bound)
		return background_fixed_bound / OVERLAY_BLOCK;
	return overlay_count_slots(o, min_u64(max_u64(bound, MIN_BOUND), limit));
}

void background_wait_at_bound(struct overlay *o)
{
	struct background *b = background_of(o);
	bool waits;

	futex_lock(&o->lock);
	waits = o->used >= bound_slots(o, b->size_limit) && o->newest.floor > b->home;
	futex_unlock(&o->lock);
	if (waits)
		background_make_room(o);
}
