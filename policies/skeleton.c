/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * skeleton - a complete policy from which you can start your own. It first evicts segments with
 * a single fault, and then the others; each kind in the order of faults. It is not part of the
 * library. Copy this file. Replace the name "skeleton" in the file, in the table at its end, and in
 * the name of the shared object. Then replace the rule:
 *
 *     cc -shared -fPIC $(pkg-config --cflags ummap) -o ummap-policy-skeleton.so skeleton.c
 *     UMMAP_DRIVER_PATH=$PWD program
 *
 * The program can now map with attr.policy = "skeleton". ummap-policy(3) explains each call.
 */
#include <errno.h>
#include <stdlib.h>
#include <ummap-policy.h>

/* Policy object of a group or mapping: two rings of nodes. The first node of a ring is evicted
 * first. */
struct skeleton {
	struct ummap_node once;  /* ring of segments with one fault since they became resident */
	struct ummap_node again; /* ring of the other segments */
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

/* The only call that may allocate memory. args is the text after "skeleton:". This policy has no
 * arguments. */
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

/* The library has removed all nodes before. */
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

/* Moves a node to the second ring. The event CLEANED does not count, because the library wrote the
 * segment and the program did not access it. */
static void skeleton_touch(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct skeleton *s = p;

	if (why == UMMAP_EV_CLEANED)
		return;
	take_out(node);
	put_last(&s->again, node);
}

/* Walks the first ring and then the second one, so that it returns each node once. */
static struct ummap_node *skeleton_pick(void *p, struct ummap_node *after)
{
	struct skeleton *s = p;
	struct ummap_node *next = after ? after->next : s->once.next;

	if (next == &s->once)
		next = s->again.next;
	return next == &s->again ? NULL : next;
}

/* The only symbol that the shared object exports. */
const struct ummap_policy ummap_policy = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "skeleton",
	.help = "evicts segments with a single fault first",
	.create = skeleton_create,
	.destroy = skeleton_destroy,
	.insert = skeleton_insert,
	.remove = skeleton_remove,
	.touch = skeleton_touch,
	.pick = skeleton_pick,
};
