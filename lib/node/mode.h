/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of the node's memory this process may hold: static and dynamic mode. */
#ifndef MODE_H
#define MODE_H

#include "node/node.h"

/* What the budget is computed from. */
struct mode {
	bool dynamic;
	size_t limit;        /* bytes for all processes together */
	size_t step;         /* dynamic: grows by so much at a time */
	size_t budget;       /* what this process may hold now */
	size_t share;        /* its share of the limit */
	size_t held;         /* what it held at the last adjustment */
};

/* What the process wants to hold: its share; in dynamic mode what it uses and a little more, and when other processes
 * have asked for memory, its share and half of what it holds beyond that. */
size_t mode_wanted(const struct mode *m, const struct node_view *view, size_t held, bool asked);
/* How much of that it may have. */
size_t mode_granted(const struct mode *m, const struct node_view *view, size_t wanted);

/* Joins the processes of the node, once, and again in a forked child. 0, or -errno with a sentence. */
int mode_start(void);
/* A mapping with segments of this size begins: budgets grow by at least two of them. */
void mode_note_segment(size_t bytes);
void mode_leave(void);
/* In a forked child. */
void mode_forget(void);

/* What it can get sooner or later: its share, or more if it has more. */
size_t mode_due(void);

/* For the background thread. mode_attend: it is the thread that other processes wake. mode_adjust: sets the budget of a
 * process that holds so much, and returns after how many ms to do so again. mode_wait: waits so long, or less if there
 * is a reason. */
void mode_attend(void);
unsigned mode_adjust(size_t held);
void mode_wait(unsigned ms);
/* Whether other processes may use what this one does not. */
bool mode_yields(void);

/* Above this, faults ask for more. */
extern _Atomic size_t mode_mark;
void mode_ask_more(void);

/* On the fault path: the process is going to hold so much. */
static inline void mode_expect(size_t held)
{
	if (held > atomic_load_explicit(&mode_mark, memory_order_relaxed))
		mode_ask_more();
}

#endif
