/* SPDX-License-Identifier: BSD-3-Clause */
/* This process among the others of its user on the node. All but node_forget: one thread at a time. */
#ifndef NODE_H
#define NODE_H

#include "node/registry.h"

/* What a process says of itself when it joins. */
struct node_self {
	size_t limit;        /* bytes for all processes together */
	bool dynamic;
};

/* What it sees of the others. */
struct node_view {
	unsigned live;       /* processes, this one included */
	size_t limit;        /* the largest that one of them goes by */
	size_t others;       /* bytes that the others hold, or have been promised */
	size_t pending;      /* ... of which they are letting go just now */
	bool waiting;        /* another one waits for a part of its share */
};

/* Takes a slot in the table of the group (NULL: of all that name none). 0, or -errno with a sentence. */
int node_join(const char *group, const struct node_self *self);
/* Gives it back; the last one removes the table. */
void node_leave(void);
/* Sees to it that the slot and the table are still there, or joins again. false: there is none, which was logged. */
bool node_keep(void);
/* The calling thread is the one that lives as long as this program does. */
void node_attend(void);

/* What the process holds, may hold, and lacks. */
void node_publish(size_t budget, size_t held, size_t lacks);
void node_look(struct node_view *view);
/* Frees the slots of processes that are dead. */
void node_reap(void);
/* Asks those that may hold more than their share; live: how many share. */
void node_ask(unsigned live);
/* Whether another one has asked this one, since this was last called; only where node_keep said that it may. */
bool node_asked(void);
/* Waits while *word == value and nobody asks, for at most ms. May wake for no reason. */
void node_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms);
/* Where the counters go; NULL: nowhere. */
struct registry_page *node_page(void);

/* Around fork: no descriptor of ours is open meanwhile. In the child, nothing was ever joined. */
void node_fork_prepare(void);
void node_fork_parent(void);
void node_forget(void);

#endif
