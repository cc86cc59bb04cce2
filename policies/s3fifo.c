/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The policy s3fifo: evicts segments that were used once before segments that were used again. It
 * follows S3-FIFO (Yang et al., SOSP 2023), adapted to the events that a policy receives.
 *
 * There are two queues, both first in, first out. A new node enters the small queue. A node enters
 * the main queue if it returns from the inactive list, because the program used it, or if it is
 * paged in again soon after its eviction (such a node is a ghost). In the main queue, the inactive
 * list gives a node its second chance.
 *
 * The size of the small queue adapts until the same portion of the nodes that recently left each
 * queue is paged in again. So there is room for a working set that changes, where a small queue of
 * fixed size would keep the nodes that were hot before.
 *
 * The lowest bit of a node's `prev` is the number of its queue. The `next` of an evicted node has
 * the number of the queue that the node left, and the time in evictions.
 */
#include "ummap-policy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

extern const struct ummap_policy ummap_policy_s3fifo;

enum { SMALL, MAIN, QUEUES };

/* The portion of all nodes that belongs in the small queue, in units of 1/PORTION_UNIT: its initial
 * value, its limits, and the largest change that one ghost causes. */
#define PORTION_UNIT (1u << 20)
#define INITIAL_PORTION (PORTION_UNIT / 10)
#define MIN_PORTION (PORTION_UNIT / 50)
#define MAX_PORTION (PORTION_UNIT / 10 * 9)
#define PORTION_STEP (PORTION_UNIT / 1024)
/* Ghosts are the newest evicted nodes, as many as the number of nodes divided by GHOST_DIVISOR. */
#define GHOST_DIVISOR 2
/* Minimum number of evictions that `evicted` counts before it is halved. */
#define MIN_EVICTED 64

struct s3fifo {
	struct ummap_node head[QUEUES]; /* rings; the node head.next is evicted first */
	size_t count[QUEUES];           /* number of nodes in each queue */
	uint64_t evicted[QUEUES];       /* recent evictions from each queue; halved now and then */
	uintptr_t clock;                /* number of all evictions */
	unsigned portion;               /* portion of the small queue */
};

#define QUEUE_BIT ((uintptr_t)1)

static struct ummap_node *prev_of(const struct ummap_node *node)
{
	return (struct ummap_node *)((uintptr_t)node->prev & ~QUEUE_BIT);
}

static unsigned queue_of(const struct ummap_node *node)
{
	return (uintptr_t)node->prev & QUEUE_BIT;
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

static size_t count_nodes(const struct s3fifo *s)
{
	return s->count[SMALL] + s->count[MAIN];
}

/* ---- Evicted nodes ---- */

static void s3fifo_gone(void *p, struct ummap_node *node, unsigned label)
{
	struct s3fifo *s = p;
	unsigned queue = label ? MAIN : SMALL;

	s->evicted[queue]++;
	if (s->evicted[SMALL] + s->evicted[MAIN] > count_nodes(s) / GHOST_DIVISOR + MIN_EVICTED) {
		s->evicted[SMALL] /= 2;
		s->evicted[MAIN] /= 2;
	}
	s->clock++;
	node->prev = NULL;
	node->next = (struct ummap_node *)(s->clock << 1 | queue);
}

/* Whether the node is a ghost. *queue is the queue that the node left. */
static bool is_ghost(const struct s3fifo *s, const struct ummap_node *node, unsigned *queue)
{
	uintptr_t left = (uintptr_t)node->next;

	*queue = left & QUEUE_BIT;
	return left && s->clock - (left >> 1) <= count_nodes(s) / GHOST_DIVISOR;
}

/*
 * A ghost that left `queue` has returned, so the portion of this queue grows. A queue with more
 * evictions has more ghosts. Therefore each step is proportional to the evictions from the other
 * queue.
 */
static void adapt_portion(struct s3fifo *s, unsigned queue)
{
	uint64_t all = s->evicted[SMALL] + s->evicted[MAIN];
	uint64_t other = s->evicted[queue == SMALL ? MAIN : SMALL];
	unsigned step = all ? (unsigned)(PORTION_STEP * other / all) : 0;

	if (queue == SMALL)
		s->portion = s->portion + step < MAX_PORTION ? s->portion + step : MAX_PORTION;
	else
		s->portion = s->portion > MIN_PORTION + step ? s->portion - step : MIN_PORTION;
}

/* ---- Resident nodes ---- */

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
	s->portion = INITIAL_PORTION;
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
		adapt_portion(s, left);
	put_last(s, node, ghost ? MAIN : SMALL);
}

static void s3fifo_remove(void *p, struct ummap_node *node)
{
	take_out(p, node);
}

/* A store soon after the first load is not a second use. Only a return from the inactive list
 * is. */
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

/* The queue whose nodes are evicted first. */
static unsigned first_queue(const struct s3fifo *s)
{
	uint64_t max_small = (uint64_t)count_nodes(s) * s->portion / PORTION_UNIT;

	return s->count[MAIN] == 0 || s->count[SMALL] > max_small ? SMALL : MAIN;
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
	.help = "evicts segments used once before those used again (S3-FIFO)",
	.create = s3fifo_create,
	.destroy = s3fifo_destroy,
	.insert = s3fifo_insert,
	.remove = s3fifo_remove,
	.touch = s3fifo_touch,
	.pick = s3fifo_pick,
	.label = s3fifo_label,
	.gone = s3fifo_gone,
};
