/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * skeleton - a start for policies of your own: what was asked for once goes before what was asked for again,
 * each kind first-in first-out. It is complete, but no part of the library. Copy it, change the name in three
 * places (here, in the table and in the name of the file that you make of it), and put your rule here:
 *
 *     cc -shared -fPIC $(pkg-config --cflags ummap) -o ummap-policy-skeleton.so skeleton.c
 *     UMMAP_DRIVER_PATH=$PWD program          # which maps with attr.policy = "skeleton"
 *
 * ummap-policy(3) says what each call has to do.
 */
#include <errno.h>
#include <stdlib.h>
#include <ummap-policy.h>

/* What each mapping has of this policy: two rings of nodes, whose first ones go first. */
struct skeleton {
	struct ummap_node once, again;
};

static void put_last(struct ummap_node *ring, struct ummap_node *node)
{
	node->prev = ring->prev;
	node->next = ring;
	ring->prev->next = node;
	ring->prev = node;
}

static void take_out(struct ummap_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

/* The only call that may allocate. args is what follows "skeleton:", and this policy takes nothing there. */
static int skeleton_create(const char *args, void **p)
{
	struct skeleton *s;

	if (*args)
		return -EINVAL;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->once.prev = s->once.next = &s->once;
	s->again.prev = s->again.next = &s->again;
	*p = s;
	return 0;
}

/* Every node has been removed before. */
static void skeleton_destroy(void *p)
{
	free(p);
}

static void skeleton_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct skeleton *s = p;

	(void)why;
	put_last(&s->once, node);
}

static void skeleton_remove(void *p, struct ummap_node *node)
{
	(void)p;
	take_out(node);
}

/* Being written to storage is no use of a segment; being stored to, and coming back from standby, are. */
static void skeleton_touch(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct skeleton *s = p;

	if (why == UMMAP_EV_CLEANED)
		return;
	take_out(node);
	put_last(&s->again, node);
}

/* From the first ring on into the second, so that a walk meets every node once. */
static struct ummap_node *skeleton_pick(void *p, struct ummap_node *after)
{
	struct skeleton *s = p;
	struct ummap_node *next = after ? after->next : s->once.next;

	if (next == &s->once)
		next = s->again.next;
	return next == &s->again ? NULL : next;
}

/* The only name that the file exports. */
const struct ummap_policy ummap_policy = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "skeleton",
	.help = "once before again, each first in, first out",
	.create = skeleton_create,
	.destroy = skeleton_destroy,
	.insert = skeleton_insert,
	.remove = skeleton_remove,
	.touch = skeleton_touch,
	.pick = skeleton_pick,
};
