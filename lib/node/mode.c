/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static mode: a process may hold its limit divided by the number of processes. Dynamic mode: it may hold what it uses
 * and a little more, also beyond that share, as long as the sum stays under the limit (additive increase). A process
 * that lacks a part of its share asks those that may hold more than theirs: in static mode they free all of the excess,
 * in dynamic mode half of it (multiplicative decrease). The thesis uses a signal for this, SIGEVICT; here it is a word
 * in the registry, on which the other's background thread waits, because a signal would kill a process that has reset
 * its handler.
 *
 * A process that wants more writes that into the registry before it reads what the others hold. So if two do this at
 * once, at least one sees the other: the sum stays under the limit without a lock. All this happens on the background
 * thread; faults only read the budget and a mark, and wake the thread.
 */
#include "node/mode.h"

#include "memory/budget.h"
#include "base/config.h"
#include "base/log.h"

/* How often to look after the others when nothing happens; what a process grows by, as a part of the limit; and how
 * long to wait before it grows once more, before it tries again in vain, and while it lacks some of its share. */
#define IDLE_MS 1000
#define STEP_PART 128
#define STEP_MIN ((size_t)256 << 10)
#define GROW_MS 5
#define FULL_MS 100
#define LACK_MS 20

_Atomic size_t mode_mark = SIZE_MAX;

static struct mode mode;
static bool joined;
static _Atomic size_t largest_segment; /* bytes of the largest segment of any mapping so far */
static _Atomic size_t due;       /* share, or budget where that is more */
static _Atomic uint32_t wake;    /* counts what should be looked at */
static uint32_t woken;           /* ... as far as it has been */
static _Atomic bool yields;      /* others may use what this process does not */

static size_t minus(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

/* ---- The rules ---- */

size_t mode_wanted(const struct mode *m, const struct node_view *view, size_t held, bool asked_for)
{
	size_t used = min_size(held, m->budget);

	if (!m->dynamic || view->live == 1)
		return m->share;
	if (asked_for) {
		size_t excess = minus(used, m->share);

		/* Halves never end. */
		return excess > m->step ? m->share + excess / 2 : min_size(m->budget, m->share);
	}
	/* On its way down, by which it would seem to use all that it has. */
	if (held > m->budget && held < m->held)
		return m->budget;
	if (m->budget > held + 2 * m->step)
		return held + m->step;
	if (m->budget > held + m->step / 2 || m->budget >= m->limit)
		return m->budget;
	/* Processes that wait for a part of their share come first. */
	if (m->budget >= m->share && view->waiting)
		return m->budget;
	return min_size(m->limit, m->budget + m->step);
}

/* Within its share a process may have what there is by the largest of all limits; beyond it, by its own. */
size_t mode_granted(const struct mode *m, const struct node_view *view, size_t wanted)
{
	size_t within = min_size(m->share, minus(view->limit, view->others));
	size_t most = max_size(within, minus(m->limit, view->others));

	return wanted <= m->budget ? wanted : max_size(m->budget, min_size(wanted, most));
}

/* ---- Adjusting ---- */

static void rouse(void)
{
	wake++;
	futex_wake(&wake, 1);
}

void mode_ask_more(void)
{
	/* Once is enough. */
	if (atomic_exchange(&mode_mark, SIZE_MAX) != SIZE_MAX)
		rouse();
}

/* Takes what is wanted, or as much as there is of it. Returns what is lacking to the share. */
static size_t settle(struct node_view *view, size_t held)
{
	size_t wanted = mode_wanted(&mode, view, held, node_asked()), lacks;

	if (wanted > mode.budget) {
		node_publish(wanted, held, 0);
		node_look(view);
	}
	mode.budget = mode_granted(&mode, view, wanted);
	mode.held = held;
	lacks = minus(min_size(wanted, mode.share), mode.budget);
	node_publish(mode.budget, held, lacks);
	budget_set(mode.budget);
	due = max_size(mode.share, mode.budget);
	if (lacks > view->pending)
		node_ask(view->live);
	return lacks;
}

/* In dynamic mode: sees to it that the thread hears of faults that want more. */
static unsigned watch(size_t held, bool grown)
{
	bool tight = held + mode.step / 2 >= mode.budget;
	bool may_grow = mode_yields() && mode.budget < mode.limit;

	mode_mark = may_grow && !tight ? mode.budget - mode.step / 2 : SIZE_MAX;
	if (!may_grow || !tight)
		return IDLE_MS;
	return grown ? GROW_MS : FULL_MS;
}

static unsigned adjust(size_t held)
{
	static uint64_t next_burial;
	static bool lacking;
	size_t before = mode.budget;
	struct node_view view;
	unsigned ms;

	if (lacking || sys_now() >= next_burial) {
		node_reap();
		next_burial = sys_now() + IDLE_MS;
	}
	node_look(&view);
	mode.share = mode.limit / view.live;
	/* A budget grows when its free part is at most half a step. Half a step must hold a segment:
	 * otherwise a process whose next segment does not fit would never ask for more. */
	mode.step = max_size(mode.step, 2 * largest_segment);
	atomic_store_explicit(&yields, mode.dynamic && view.live > 1, memory_order_relaxed);
	lacking = settle(&view, held) > 0;
	ms = watch(held, mode.budget > before);
	return lacking ? LACK_MS : ms;
}

unsigned mode_adjust(size_t held)
{
	woken = wake;
	return node_keep() ? adjust(held) : IDLE_MS;
}

bool mode_yields(void)
{
	return atomic_load_explicit(&yields, memory_order_relaxed);
}

void mode_attend(void)
{
	node_attend();
}

void mode_wait(unsigned ms)
{
	node_wait(&wake, woken, ms);
}

/* ---- Beginning and end ---- */

/* There is no shared memory, or this process may not use it: the process works alone, and tries again. */
static void be_alone(void)
{
	log_line(LOG_WARN, "mode", "cannot join the node's memory group, so this process uses the "
		 "whole limit: %s", fail_message());
	fail_clear();
	budget_set(mode.limit);
	mode.budget = mode.limit;
	due = mode.limit;
}

int mode_start(void)
{
	struct node_self self;
	int err;

	if (joined)
		return 0;
	mode = (struct mode){ .dynamic = config.dynamic, .limit = budget_limit(), .share = budget_limit() };
	mode.step = max_size(mode.limit / STEP_PART, STEP_MIN);
	self = (struct node_self){ mode.limit, mode.dynamic };
	err = node_join(config.group, &self);
	if (!err)
		adjust(0);
	else if (err != -EAGAIN)
		be_alone();
	joined = err != -EAGAIN;
	return joined ? 0 : err;
}

void mode_note_segment(size_t bytes)
{
	size_t largest = largest_segment;

	while (bytes > largest && !atomic_compare_exchange_weak(&largest_segment, &largest, bytes))
		;
}

void mode_leave(void)
{
	node_leave();
}

void mode_forget(void)
{
	joined = false;
	mode_mark = SIZE_MAX;
	node_forget();
}

size_t mode_due(void)
{
	return due;
}
