/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static mode: a process may hold the limit divided by the number of processes. Dynamic mode: a
 * process may hold the memory that it uses and a little more, also beyond its share, while the sum
 * stays under the limit (additive increase). A process that lacks a part of its share asks the
 * processes that may hold more than theirs. In static mode, they free the whole excess, and in
 * dynamic mode half of it (multiplicative decrease). The thesis uses a signal for this request,
 * SIGEVICT. Here, the request is a word in the registry on which the other process's background
 * thread waits, because a signal would kill a process that has reset its handler.
 *
 * A process that wants more writes this into the registry before it reads the numbers of the other
 * processes. If two processes do this at once, at least one sees the other, so the sum stays under
 * the limit without a lock. All this happens on the background thread. Faults only compare the
 * held bytes with share_growth_mark, and wake the thread.
 */
#include "budget/share.h"

#include "base/config.h"
#include "base/log.h"
#include "node/node.h"

/* The time between adjustments without a reason; after the budget has grown; after it could not
 * grow; and while the process lacks a part of its share. */
#define IDLE_MS 1000
#define GROW_MS 5
#define FULL_MS 100
#define LACK_MS 20
/* The budget grows by this part of the limit, and by at least MIN_STEP_BYTES. */
#define STEP_PART 128
#define MIN_STEP_BYTES ((size_t)256 << 10)

_Atomic size_t share_growth_mark = SIZE_MAX;

static struct share share;
static bool joined;
static _Atomic size_t largest_segment; /* bytes of the largest segment of any mapping so far */
static _Atomic uint32_t requests;      /* number of requests to adjust the budget */
static uint32_t requests_seen;         /* the background thread's last look at it */
static _Atomic bool is_dynamic;        /* result of share_is_dynamic */

static size_t add_saturated(size_t a, size_t b)
{
	return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* ---- The rules ---- */

size_t share_wanted(const struct share *s, const struct share_view *view, size_t held, bool asked)
{
	size_t used = min_size(held, s->budget);

	if (!s->dynamic || view->live == 1)
		return s->bytes;
	if (asked) {
		size_t excess = subtract_size(used, s->bytes);

		/* Repeated halving alone would never reach the share. */
		return excess > s->step ? s->bytes + excess / 2 : min_size(s->budget, s->bytes);
	}
	/* The process is still freeing memory, so it only seems to use its whole budget. */
	if (held > s->budget && held < s->held)
		return s->budget;
	if (s->budget > held + 2 * s->step)
		return held + s->step;
	if (s->budget > held + s->step / 2 || s->budget >= s->limit)
		return s->budget;
	/* Processes that wait for a part of their share come first. */
	if (s->budget >= s->bytes && view->waiting)
		return s->budget;
	return min_size(s->limit, s->budget + s->step);
}

/* Within its share, a process may use memory up to the largest of all limits; beyond it, up to its
 * own limit. */
size_t share_granted(const struct share *s, const struct share_view *view, size_t wanted)
{
	size_t within = min_size(s->bytes, subtract_size(view->limit, view->others));
	size_t most = max_size(within, subtract_size(s->limit, view->others));

	return wanted <= s->budget ? wanted : max_size(s->budget, min_size(wanted, most));
}

/* ---- The other processes ---- */

static struct share_view view_group(void)
{
	struct share_view view = { .live = 1, .limit = share.limit };

	for (const struct registry_slot *s = NULL; (s = node_next(s));) {
		size_t budget = s->budget, held = s->held;

		view.live++;
		view.limit = max_size(view.limit, s->limit);
		view.others = add_saturated(view.others, max_size(budget, held));
		view.pending = add_saturated(view.pending, subtract_size(held, budget));
		view.waiting |= s->lacks > 0;
	}
	return view;
}

/* Asks the processes that may hold more than their share for memory. */
static void ask_others(unsigned live)
{
	for (const struct registry_slot *s = NULL; (s = node_next(s));) {
		if (s->budget > s->limit / live)
			node_ask(s);
	}
}

/* ---- Adjustment ---- */

void share_ask_growth(void)
{
	/* One request is enough. */
	if (atomic_exchange(&share_growth_mark, SIZE_MAX) == SIZE_MAX)
		return;
	requests++;
	futex_wake(&requests, 1);
}

/* Takes as much as is wanted and available. Returns the bytes that the share lacks. */
static size_t set_budget(struct share_view *view, size_t held)
{
	size_t wanted = share_wanted(&share, view, held, node_asked()), lacks;

	if (wanted > share.budget) {
		node_publish(wanted, held, 0);
		*view = view_group();
	}
	share.budget = share_granted(&share, view, wanted);
	share.held = held;
	lacks = subtract_size(min_size(wanted, share.bytes), share.budget);
	node_publish(share.budget, held, lacks);
	budget_set(share.budget, share.bytes);
	if (lacks > view->pending)
		ask_others(view->live);
	return lacks;
}

/* Sets the mark at which faults wake the thread. Returns the time until the next adjustment. */
static unsigned set_growth_mark(size_t held, bool has_grown)
{
	bool is_tight = held + share.step / 2 >= share.budget;
	bool can_grow = share_is_dynamic() && share.budget < share.limit;

	share_growth_mark = can_grow && !is_tight ? share.budget - share.step / 2 : SIZE_MAX;
	if (!can_grow || !is_tight)
		return IDLE_MS;
	return has_grown ? GROW_MS : FULL_MS;
}

static unsigned adjust(size_t held)
{
	static uint64_t next_reap;
	static bool is_lacking;
	size_t before = share.budget;
	struct share_view view;
	unsigned ms;

	if (is_lacking || sys_now() >= next_reap) {
		node_reap();
		next_reap = sys_now() + IDLE_MS;
	}
	view = view_group();
	share.bytes = share.limit / view.live;
	/* A budget grows when its free part is at most half a step. Half a step must hold a
	 * segment: otherwise a process whose next segment does not fit would never ask for more. */
	share.step = max_size(share.step, 2 * largest_segment);
	is_dynamic = share.dynamic && view.live > 1;
	is_lacking = set_budget(&view, held) > 0;
	ms = set_growth_mark(held, share.budget > before);
	return is_lacking ? LACK_MS : ms;
}

unsigned share_adjust(void)
{
	requests_seen = requests;
	return node_keep() ? adjust(budget_held()) : IDLE_MS;
}

bool share_is_dynamic(void)
{
	return is_dynamic;
}

void share_wait(unsigned ms)
{
	node_wait(&requests, requests_seen, ms);
}

/* ---- Start ---- */

/* There is no shared memory, or this process may not use it. The process works alone, and tries to
 * join again. */
static void work_alone(void)
{
	log_line(LOG_WARN, "mode", "cannot join the node's memory group, so this process uses the "
		 "whole limit: %s", fail_message());
	fail_clear();
	budget_set(share.limit, share.limit);
	share.budget = share.limit;
}

int share_start(void)
{
	struct node_self self;
	int err;

	if (joined)
		return 0;
	share = (struct share){ .dynamic = config.dynamic, .limit = budget_limit(),
				.bytes = budget_limit() };
	share.step = max_size(share.limit / STEP_PART, MIN_STEP_BYTES);
	self = (struct node_self){ share.limit, share.dynamic };
	err = node_join(config.group, &self);
	if (!err)
		adjust(0);
	else if (err != -EAGAIN)
		work_alone();
	joined = err != -EAGAIN;
	return joined ? 0 : err;
}

void share_note_segment(size_t bytes)
{
	size_t largest = largest_segment;

	while (bytes > largest &&
	       !atomic_compare_exchange_weak(&largest_segment, &largest, bytes))
		;
}

void share_fork_child(void)
{
	joined = false;
	share_growth_mark = SIZE_MAX;
	node_fork_child();
}
