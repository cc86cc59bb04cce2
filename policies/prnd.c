/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prnd - a random one goes first.
 *
 * The nodes stand in a ring, and a hand points at the one to go next. A new node is put behind
 * the hand, which then moves on by a random number of steps: an insertion costs a few steps, a
 * pick none. Each time that the hand goes round it catches a node with the same small
 * probability, however long that has been there: that is what choosing at random is. A pick draws
 * nothing, so a walk sees every node once.
 */
#include "ummap-policy.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 16 /* a power of two: the hand moves by less */

extern const struct ummap_policy ummap_policy_prnd;

struct prnd {
	struct ummap_node *hand; /* NULL: the ring is empty */
	uint64_t seed;
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

/* Any seed will do, 0 included: a Weyl sequence, its bits mixed. */
static unsigned draw(struct prnd *r)
{
	uint64_t x = r->seed += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return (unsigned)(x >> 32) & (STEPS - 1);
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
	for (unsigned steps = draw(r); steps > 0; steps--)
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
	.help = "at random (prnd:seed=N)",
	.create = prnd_create,
	.destroy = prnd_destroy,
	.insert = prnd_insert,
	.remove = prnd_remove,
	.pick = prnd_pick,
};
