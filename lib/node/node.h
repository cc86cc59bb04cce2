/* SPDX-License-Identifier: BSD-3-Clause */
/* This process among the processes of its user on the node. All but node_forget: one thread at a time. */
#ifndef NODE_H
#define NODE_H

#include "node/registry.h"

/* What a process publishes about itself when it joins. */
struct node_self {
	size_t limit;        /* bytes for all processes together */
	bool dynamic;
};

/* What it reads about the others. */
struct node_view {
	unsigned live;       /* processes, this one included */
	size_t limit;        /* the largest limit of any of them */
	size_t others;       /* bytes that the others hold, or were promised */
	size_t pending;      /* ... of which they are freeing at the moment */
	bool waiting;        /* another process waits for a part of its share */
};

/* Takes a slot in the registry of the group (NULL: of processes without one). 0, or -errno with a sentence. */
int node_join(const char *group, const struct node_self *self);
/* Frees the slot; the last process removes the registry. */
void node_leave(void);
/* Checks that the slot and the registry still exist, or joins again. false: there is no registry, which was logged. */
bool node_keep(void);
/* Registers the calling thread as the background thread, which lives as long as the program. */
void node_attend(void);

/* What the process holds, may hold, and lacks. */
void node_publish(size_t budget, size_t held, size_t lacks);
void node_look(struct node_view *view);
/* Frees the slots of dead processes. */
void node_reap(void);
/* Asks the processes that may hold more than their share for memory; live: the number of processes. */
void node_ask(unsigned live);
/* Whether another process has asked this one since the last call; only after node_keep returned true. */
bool node_asked(void);
/* Waits while *word == value and no process asks, for at most ms. May wake for no reason. */
void node_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms);
/* The page for the counters; NULL: there is none. */
struct registry_page *node_page(void);

/* In a forked child: it has joined no node. */
void node_forget(void);

#endif
