/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The policy plru: evicts the segment whose last event is the oldest. The order is only "pseudo"
 * least recently used, because accesses to resident segments cause no event.
 */
#include "list.h"

extern const struct ummap_policy ummap_policy_plru;

static void plru_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	(void)why;
	list_insert_before(p, node);
}

static void plru_touch(void *p, struct ummap_node *node, enum ummap_event why)
{
	/* The library wrote the segment. The program did not access it. */
	if (why == UMMAP_EV_CLEANED)
		return;
	list_unlink(node);
	list_insert_before(p, node);
}

const struct ummap_policy ummap_policy_plru = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "plru",
	.help = "least recently used, as far as faults tell",
	.create = list_create,
	.destroy = list_destroy,
	.insert = plru_insert,
	.remove = list_remove,
	.touch = plru_touch,
	.pick = list_pick,
};
