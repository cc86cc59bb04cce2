/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The policy lifo: evicts the newest segment first. If a program passes repeatedly over more data
 * than fits in memory, the beginning of the data stays resident.
 */
#include "list.h"

extern const struct ummap_policy ummap_policy_lifo;

static void lifo_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	(void)why;
	list_insert_after(p, node);
}

const struct ummap_policy ummap_policy_lifo = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "lifo",
	.help = "last in, first out",
	.create = list_create,
	.destroy = list_destroy,
	.insert = lifo_insert,
	.remove = list_remove,
	.pick = list_pick,
};
