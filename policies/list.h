/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list that most policies use: a ring of nodes around a head. The first node behind the head is
 * evicted first. A policy with one such list and no arguments uses list_create, list_destroy,
 * list_remove and list_pick in its table; its object is the head.
 */
#ifndef UMMAP_POLICIES_LIST_H
#define UMMAP_POLICIES_LIST_H

#include "ummap-policy.h"

#include <errno.h>
#include <stdlib.h>

static inline void list_init(struct ummap_node *head)
{
	head->prev = head->next = head;
}

static inline void list_insert_before(struct ummap_node *place, struct ummap_node *node)
{
	node->prev = place->prev;
	node->next = place;
	place->prev->next = node;
	place->prev = node;
}

static inline void list_insert_after(struct ummap_node *place, struct ummap_node *node)
{
	list_insert_before(place->next, node);
}

static inline void list_unlink(struct ummap_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

static inline int list_create(const char *args, void **p)
{
	struct ummap_node *head;

	if (*args)
		return -EINVAL;
	head = malloc(sizeof(*head));
	if (!head)
		return -ENOMEM;
	list_init(head);
	*p = head;
	return 0;
}

static inline void list_destroy(void *p)
{
	free(p);
}

static inline void list_remove(void *p, struct ummap_node *node)
{
	(void)p;
	list_unlink(node);
}

static inline struct ummap_node *list_pick(void *p, struct ummap_node *after)
{
	struct ummap_node *head = p, *next = after ? after->next : head->next;

	return next == head ? NULL : next;
}

#endif
