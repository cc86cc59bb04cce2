/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of the node's memory this process may hold: static and dynamic mode. */
#ifndef MODE_H
#define MODE_H

#include "node/node.h"

/* What the budget follows from. */
struct mode {
	bool dynamic;
	size_t limit;        /* bytes for all processes together */
	size_t step;         /* dynamic: grows by so much at a time */
	size_t budget;       /* what this process may hold now */
	size_t share;        /* what is its due */
	size_t held;         /* what it held when it looked last */
};

/* What the process would like to hold: its share; in dynamic mode what it uses and a bit more, and when others have
 * asked for memory, its share and half of what it holds beyond that. */
size_t mode_wanted(const struct mode *m, const struct node_view *view, size_t held, bool asked);
/* How much of that it may have. */
size_t mode_granted(const struct mode *m, const struct node_view *view, size_t wanted);

/* Joins the processes of the node, once, and again in a forked child. 0, or -errno with a sentence. */
int mode_start(void);
void mode_leave(void);
/* In a forked child. */
void mode_forget(void);

/* What it may count on having, if not now: its share, or more if it has more. */
size_t mode_due(void);

/* For the background thread: it is the one that others ask; it mappings the budget of a process that holds so much, and
 * learns after how many ms to do so again; it waits for so long, or until there is a reason earlier. */
void mode_attend(void);
unsigned mode_adjust(size_t held);
void mode_wait(unsigned ms);
/* Whether others may use what this process does not. */
bool mode_yields(void);

/* Above this, faults ask for more. */
extern _Atomic size_t mode_mark;
void mode_ask_more(void);

/* On the way of a fault: the process is going to hold so much. */
static inline void mode_expect(size_t held)
{
	if (held > atomic_load_explicit(&mode_mark, memory_order_relaxed))
		mode_ask_more();
}

#endif
