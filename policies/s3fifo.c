/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * s3fifo - what was used once goes before what was used again: S3-FIFO (Yang et al., SOSP 2023), with what is known here.
 *
 * New nodes go through a small queue, first in, first out. A node that comes back from the inactive list was used, and a
 * node that is paged in again soon after it left memory (a ghost) is wanted: both go to the main queue, which is first
 * in, first out, too; there the inactive list is the second chance.
 *
 * How small the small queue is follows from what comes back: of those that left it lately, as large a part should be
 * wanted again as of those that left the main queue. So a set that moves on finds room, where a fixed size would keep
 * what was hot once.
 *
 * Which queue a node is in stands in the lowest bit of its first link. A node that is gone keeps in its second link which
 * queue it left, and when, counted in nodes that went.
 */
#include "ummap-policy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

extern const struct ummap_policy ummap_policy_s3fifo;

enum { SMALL, MAIN, QUEUES };

/* The small queue's part of all nodes, in units of 1/WHOLE: at the start, its bounds, and how far one node that comes back
 * can move it. */
#define WHOLE (1u << 20)
#define PART_FIRST (WHOLE / 10)
#define PART_LEAST (WHOLE / 50)
#define PART_MOST (WHOLE / 10 * 9)
#define PART_STEP (WHOLE / 1024)
/* As many as went while this part of all nodes was replaced are ghosts. */
#define GHOSTS_PART 2
/* So many that went are compared at least. */
#define WENT_LEAST 64

struct s3fifo {
	struct ummap_node head[QUEUES]; /* rings; head.next goes first */
	size_t count[QUEUES];
	uint64_t went[QUEUES];          /* of each lately: halved now and then */
	uintptr_t clock;                /* of all, ever */
	unsigned part;                  /* of the small queue */
};

#define BIT ((uintptr_t)1)

static struct ummap_node *prev_of(const struct ummap_node *node)
{
	return (struct ummap_node *)((uintptr_t)node->prev & ~BIT);
}

static unsigned queue_of(const struct ummap_node *node)
{
	return (uintptr_t)node->prev & BIT;
}

static void set_prev(struct ummap_node *node, const struct ummap_node *prev, unsigned queue)
{
	node->prev = (struct ummap_node *)((uintptr_t)prev | queue);
}

static void put_last(struct s3fifo *s, struct ummap_node *node, unsigned queue)
{
	struct ummap_node *head = &s->head[queue], *last = prev_of(head);

	set_prev(node, last, queue);
	node->next = head;
	last->next = node;
	set_prev(head, node, queue);
	s->count[queue]++;
}

static void take_out(struct s3fifo *s, struct ummap_node *node)
{
	unsigned queue = queue_of(node);

	prev_of(node)->next = node->next;
	set_prev(node->next, prev_of(node), queue);
	s->count[queue]--;
}

static size_t count(const struct s3fifo *s)
{
	return s->count[SMALL] + s->count[MAIN];
}

/* ---- Nodes that are gone ---- */

static void s3fifo_gone(void *p, struct ummap_node *node, unsigned label)
{
	struct s3fifo *s = p;
	unsigned queue = label ? MAIN : SMALL;

	s->went[queue]++;
	if (s->went[SMALL] + s->went[MAIN] > count(s) / GHOSTS_PART + WENT_LEAST) {
		s->went[SMALL] /= 2;
		s->went[MAIN] /= 2;
	}
	s->clock++;
	node->prev = NULL;
	node->next = (struct ummap_node *)(s->clock << 1 | queue);
}

/* Whether it went not long ago, and then from which queue. */
static bool is_ghost(const struct s3fifo *s, const struct ummap_node *node, unsigned *queue)
{
	uintptr_t left = (uintptr_t)node->next;

	*queue = left & BIT;
	return left && s->clock - (left >> 1) <= count(s) / GHOSTS_PART;
}

/* One that had left this queue came back: it should have stayed, so the other one is to give more; but much of what left is
 * going to come back where much has left, so it counts by what left the other one. */
static void learn(struct s3fifo *s, unsigned queue)
{
	uint64_t all = s->went[SMALL] + s->went[MAIN], other = s->went[queue == SMALL ? MAIN : SMALL];
	unsigned step = all ? (unsigned)(PART_STEP * other / all) : 0;

	if (queue == SMALL)
		s->part = s->part + step < PART_MOST ? s->part + step : PART_MOST;
	else
		s->part = s->part > PART_LEAST + step ? s->part - step : PART_LEAST;
}

/* ---- Nodes that are resident ---- */

static int s3fifo_create(const char *args, void **p)
{
	struct s3fifo *s;

	if (*args)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	for (unsigned queue = 0; queue < QUEUES; queue++) {
		s->head[queue].next = &s->head[queue];
		set_prev(&s->head[queue], &s->head[queue], queue);
	}
	s->part = PART_FIRST;
	*p = s;
	return 0;
}

static void s3fifo_destroy(void *p)
{
	free(p);
}

static void s3fifo_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct s3fifo *s = p;
	unsigned left;
	bool ghost = why != UMMAP_EV_AHEAD && is_ghost(s, node, &left);

	if (ghost)
		learn(s, left);
	put_last(s, node, ghost ? MAIN : SMALL);
}

static void s3fifo_remove(void *p, struct ummap_node *node)
{
	take_out(p, node);
}

/* A store soon after the first load is no second use. */
static void s3fifo_touch(void *p, struct ummap_node *node, enum ummap_event why)
{
	if (why != UMMAP_EV_RETURN)
		return;
	take_out(p, node);
	put_last(p, node, MAIN);
}

static unsigned s3fifo_label(void *p, struct ummap_node *node)
{
	(void)p;
	return queue_of(node) == MAIN;
}

/* The queue that gives first. */
static unsigned first_queue(const struct s3fifo *s)
{
	return s->count[MAIN] == 0 || s->count[SMALL] > (uint64_t)count(s) * s->part / WHOLE ? SMALL : MAIN;
}

static struct ummap_node *s3fifo_pick(void *p, struct ummap_node *after)
{
	struct s3fifo *s = p;
	unsigned first = first_queue(s), queue = after ? queue_of(after) : first;
	struct ummap_node *next = after ? after->next : s->head[queue].next;

	if (next == &s->head[queue] && queue == first) {
		queue = first == SMALL ? MAIN : SMALL;
		next = s->head[queue].next;
	}
	return next == &s->head[queue] ? NULL : next;
}

const struct ummap_policy ummap_policy_s3fifo = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "s3fifo",
	.help = "used once before used again (S3-FIFO)",
	.create = s3fifo_create,
	.destroy = s3fifo_destroy,
	.insert = s3fifo_insert,
	.remove = s3fifo_remove,
	.touch = s3fifo_touch,
	.pick = s3fifo_pick,
	.label = s3fifo_label,
	.gone = s3fifo_gone,
};
