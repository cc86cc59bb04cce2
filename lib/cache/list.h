/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of nodes with a sentinel. The caller locks. */
#ifndef LIST_H
#define LIST_H

#include <stdbool.h>
#include <ummap-policy.h>

static inline void list_init(struct ummap_node *head)
{
	head->prev = head->next = head;
}

static inline bool list_empty(const struct ummap_node *head)
{
	return head->next == head;
}

/* Inserts node before `at`; before the sentinel, that is at the end. */
static inline void list_insert(struct ummap_node *at, struct ummap_node *node)
{
	node->prev = at->prev;
	node->next = at;
	at->prev->next = node;
	at->prev = node;
}

static inline void list_remove(struct ummap_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	node->prev = node->next = NULL;
}

/* Moves all nodes of one ring to the end of another. */
static inline void list_move_all(struct ummap_node *to, struct ummap_node *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#endif
