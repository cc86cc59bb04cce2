/* SPDX-License-Identifier: BSD-3-Clause */
/* The policy fifo: evicts the segment that has been resident for the longest time. */
#include "list.h"

extern const struct ummap_policy ummap_policy_fifo;

static void fifo_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	(void)why;
	list_insert_before(p, node);
}

const struct ummap_policy ummap_policy_fifo = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "fifo",
	.help = "first in, first out",
	.create = list_create,
	.destroy = list_destroy,
	.insert = fifo_insert,
	.remove = list_remove,
	.pick = list_pick,
};
