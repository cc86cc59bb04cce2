/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the memory group's limit that this process may hold: static and dynamic mode. */
#ifndef SHARE_H
#define SHARE_H

#include "budget/budget.h"

/* The state from which the budget is computed. */
struct share {
	bool dynamic;        /* mode */
	size_t limit;        /* bytes for all processes together */
	size_t step;         /* bytes by which the budget grows at a time in dynamic mode */
	size_t budget;       /* bytes that this process may hold now */
	size_t bytes;        /* share of the limit */
	size_t held;         /* bytes that the process held at the last adjustment */
};

/* A summary of the other processes of the group. */
struct share_view {
	unsigned live;       /* number of processes, this one included */
	size_t limit;        /* largest limit of any process */
	size_t others;       /* bytes that the others hold or may hold */
	size_t pending;      /* bytes of these that the others are freeing */
	bool waiting;        /* another process waits for a part of its share */
};

/* Returns how many bytes the process should hold: in static mode its share; in dynamic mode what it
 * uses and a little more. asked: other processes have asked for memory, so the process returns half
 * of what it holds beyond its share. */
size_t share_wanted(const struct share *s, const struct share_view *view, size_t held, bool asked);
/* Returns how many of these bytes the process may hold. */
size_t share_granted(const struct share *s, const struct share_view *view, size_t wanted);

/* Joins the memory group, once, and again in a forked child. Returns 0, or -errno with a
 * message. */
int share_start(void);
/* Records the segment size of a new mapping: the budget grows by at least two segments. */
void share_note_segment(size_t bytes);
void share_fork_child(void);

/* For the background thread. share_adjust sets the budget, and returns the time in ms until the
 * next adjustment. share_wait waits for this time, or less if there is a reason to adjust it. */
unsigned share_adjust(void);
void share_wait(unsigned ms);
/* Whether other processes may use the memory that this process does not use. */
bool share_is_dynamic(void);

/* If the process holds more than these bytes, faults ask for a larger budget. */
extern _Atomic size_t share_growth_mark;
void share_ask_growth(void);

/* Called before the process holds `bytes` more. On the fault path. */
static inline void share_expect(size_t bytes)
{
	size_t mark = atomic_load_explicit(&share_growth_mark, memory_order_relaxed);

	if (mark < SIZE_MAX && budget_held() + bytes > mark)
		share_ask_growth();
}

#endif
