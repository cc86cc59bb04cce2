/* SPDX-License-Identifier: BSD-3-Clause */
/* This process among the processes of its user on the node. Only one thread calls these functions,
 * except node_leave and node_fork_child. */
#ifndef NODE_H
#define NODE_H

#include "node/registry.h"

/* The numbers that a process publishes when it joins. */
struct node_self {
	size_t limit;        /* bytes for all processes together */
	bool dynamic;        /* mode */
};

/* Takes a slot in the registry of the group (NULL: of processes without a group). Returns 0, or
 * -errno with a message. */
int node_join(const char *group, const struct node_self *self);
/* Frees the slot; the last process removes the registry. */
void node_leave(void);
/* Checks that the slot and the registry still exist, or joins again. Returns false, and logs a
 * message, if there is no registry. */
bool node_keep(void);
/* Registers the calling thread as the background thread, which lives as long as the program. */
void node_attend(void);

/* Publishes the bytes that the process may hold, holds, and lacks. */
void node_publish(size_t budget, size_t held, size_t lacks);
/* The next slot of another process, the first one after NULL; NULL: there is none. */
const struct registry_slot *node_next(const struct registry_slot *slot);
/* Frees the slots of dead processes. */
void node_reap(void);
/* Asks the process of a slot for memory. */
void node_ask(const struct registry_slot *slot);
/* Whether another process has asked this one since the last call. Only after node_keep has returned
 * true. */
bool node_asked(void);
/* Waits while *word == value and no process asks, for at most `ms`. May return for no reason. */
void node_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms);
/* The page for the counters of this process. NULL: there is none. */
struct registry_page *node_page(void);

/* In a forked child, which has joined no group. */
void node_fork_child(void);

#endif
