/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The policy prnd: evicts a random segment.
 *
 * The nodes form a ring, and the hand points to the node that is evicted next. A new node is
 * inserted behind the hand, which then advances by a random number of steps. So an insertion costs
 * a few steps, and a pick none. In each turn of the hand, every node has the same small probability
 * of eviction, independent of its age. A pick draws no number, so a walk returns each node once.
 */
#include "ummap-policy.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_END 16 /* the hand advances by fewer steps; a power of two */

extern const struct ummap_policy ummap_policy_prnd;

struct prnd {
	struct ummap_node *hand; /* node that is evicted next; NULL: the ring is empty */
	uint64_t seed;           /* state of the generator */
};

static int parse_args(const char *args, uint64_t *seed)
{
	static const char key[] = "seed=";
	char *end;

	if (!*args)
		return 0;
	if (strncmp(args, key, sizeof(key) - 1) != 0)
		return -EINVAL;
	args += sizeof(key) - 1;
	if (*args < '0' || *args > '9')
		return -EINVAL;
	errno = 0;
	*seed = strtoull(args, &end, 10);
	return *end || errno ? -EINVAL : 0;
}

static int prnd_create(const char *args, void **p)
{
	struct prnd *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	err = parse_args(args, &r->seed);
	if (err) {
		free(r);
		return err;
	}
	*p = r;
	return 0;
}

static void prnd_destroy(void *p)
{
	free(p);
}

/* Mixes the bits of a Weyl sequence, so any seed is valid, even 0. */
static unsigned draw_steps(struct prnd *r)
{
	uint64_t x = r->seed += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return (unsigned)(x >> 32) & (STEPS_END - 1);
}

static void prnd_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct prnd *r = p;

	(void)why;
	if (!r->hand) {
		r->hand = node->prev = node->next = node;
		return;
	}
	node->prev = r->hand->prev;
	node->next = r->hand;
	node->prev->next = node;
	node->next->prev = node;
	for (unsigned steps = draw_steps(r); steps > 0; steps--)
		r->hand = r->hand->next;
}

static void prnd_remove(void *p, struct ummap_node *node)
{
	struct prnd *r = p;

	if (r->hand == node)
		r->hand = node->next == node ? NULL : node->next;
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

static struct ummap_node *prnd_pick(void *p, struct ummap_node *after)
{
	const struct prnd *r = p;

	if (!after)
		return r->hand;
	return after->next == r->hand ? NULL : after->next;
}

const struct ummap_policy ummap_policy_prnd = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "prnd",
	.help = "evicts segments at random (prnd:seed=N)",
	.create = prnd_create,
	.destroy = prnd_destroy,
	.insert = prnd_insert,
	.remove = prnd_remove,
	.pick = prnd_pick,
};
