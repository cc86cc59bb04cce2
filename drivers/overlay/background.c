/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lock: `passing`, outside all locks of the overlay. A thread that waits for a pass must not hold
 * any of them.
 */
#include "background.h"

#include "common/futex.h"
#include "../keys.h"
#include "../thread.h"

#include <string.h>
#include <time.h>

#define REST_MS 1000            /* a pass begins when nothing was committed for so long */
#define READER_SLEEP_NS 50000
#define MAX_READER_SLEEPS 2000

static uint64_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec + 1;
}

/*
 * Waits until the slots that the pass has retired are free: until all readers of both generations
 * have left. The wait is bounded, because a reader may be a thread that is interrupted by a signal
 * handler, which waits for this pass.
 */
static void wait_for_readers(struct overlay *o)
{
	const struct timespec pause = { 0, READER_SLEEP_NS };
	unsigned generation = o->generation, changes = 0;

	for (int i = 0; i < MAX_READER_SLEEPS; i++) {
		bool is_free;

		futex_lock(&o->lock);
		overlay_reclaim(o);
		is_free = o->retired[0] == OVERLAY_NO_SLOT && o->retired[1] == OVERLAY_NO_SLOT;
		changes += o->generation != generation;
		generation = o->generation;
		futex_unlock(&o->lock);
		if (is_free || changes == 2)
			return;
		nanosleep(&pause, NULL);
	}
}

static void run_pass(struct background *b)
{
	int moved = 0;

	futex_lock(&b->passing);
	if (!b->stop)
		moved = b->calls->pass(b->o);
	futex_unlock(&b->passing);
	if (moved > 0)
		wait_for_readers(b->o);
	b->failed_at = moved < 0 ? now_s() : 0;
	b->moves += moved > 0;
	b->passes++;
	futex_wake(&b->passes, INT32_MAX);
}

static void *run(void *arg)
{
	struct background *b = arg;
	uint32_t seen = b->news - 1; /* the contents that were found on opening are news */
	uint64_t asked = 0;

	for (;;) {
		/* The word is read first: a change after this ends the wait. */
		uint32_t news = b->news;
		bool is_quiet = seen == news;
		uint64_t bytes, now_asked;

		b->calls->notify(b->o);
		if (b->stop)
			return NULL;
		seen = news;
		bytes = b->calls->count_waiting(b->o);
		now_asked = b->asked;
		if (now_asked != asked || (bytes && (is_quiet || bytes >= b->much))) {
			asked = now_asked;
			run_pass(b);
			bytes = 0;
		}
		futex_wait(&b->news, seen, bytes ? REST_MS : -1);
	}
}

void background_wake(struct background *b)
{
	b->news++;
	futex_wake(&b->news, 1);
}

bool background_make_room(struct background *b)
{
	uint64_t moves = b->moves;
	uint32_t passes = b->passes;

	/* Hundreds of writers may ask one after the other, and a full disk takes its time to fail. */
	if (b->failed_at >= now_s())
		return false;
	/* A pass that is under way may have begun too early; the pass after it has not. */
	for (int i = 0; i < 2 && b->moves == moves; i++) {
		b->asked++;
		background_wake(b);
		while (b->passes == passes)
			futex_wait(&b->passes, passes, -1);
		passes = b->passes;
	}
	return b->moves != moves;
}

int background_start(struct background *b, struct ummap_geom *geom)
{
	int err = thread_start(&b->thread, run, b);

	b->is_running = !err;
	return err ? keys_refuse(geom, -err, "cannot start a thread: %s" KEYS_THREAD_LIMITS,
				 strerror(-err)) : 0;
}

void background_stop(struct background *b)
{
	if (!b->is_running)
		return;
	b->stop = true;
	background_wake(b);
	pthread_join(b->thread, NULL);
	b->is_running = false;
}
