/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-policy.h - for authors of policies: the code that proposes which resident segment goes first.
 *
 * A mapping, or a group of them, has a policy object of its own. All calls but create and destroy run under
 * one lock of the library: no I/O, no allocation, no blocking. A policy sees faults, never hits: what it lets
 * go by mistake comes back from the inactive list cheaply, which shows that it was used. It sees nodes only, and may
 * keep them in lists by their two links. See ummap-policy(3).
 */
#ifndef UMMAP_POLICY_H
#define UMMAP_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMMAP_POLICY_ABI 1

/* Stands inside each segment, at a multiple of 8 bytes; the links are the policy's from insert to remove, and from gone to
 * the next insert. */
struct ummap_node {
	struct ummap_node *prev, *next;
};

/* Why a policy is told. */
enum ummap_event {
	UMMAP_EV_READ,    /* insert: a load of an absent segment */
	UMMAP_EV_WRITE,   /* insert: a store to an absent segment, which is changed now */
	UMMAP_EV_AHEAD,   /* insert: read ahead, and put in place unasked beside one that was asked for */
	UMMAP_EV_DIRTIED, /* touch: the first store to a present, unchanged segment */
	UMMAP_EV_CLEANED, /* touch: its changes have been written */
	UMMAP_EV_RETURN   /* touch, right after insert: it came back from the inactive list */
};

struct ummap_policy {
	size_t struct_size;  /* sizeof(struct ummap_policy): fields are only ever appended */
	uint32_t abi;        /* UMMAP_POLICY_ABI */
	const char *name;    /* "fifo" */
	const char *help;    /* one line */

	/* args: what follows "name:" ("seed=7"), or "". Returns 0 or a negative errno (-EINVAL: bad args). */
	int (*create)(const char *args, void **p);
	void (*destroy)(void *p);
	/* The node became resident, and is no longer. */
	void (*insert)(void *p, struct ummap_node *node, enum ummap_event why);
	void (*remove)(void *p, struct ummap_node *node);
	/* Something happened to a resident node. NULL: no matter. */
	void (*touch)(void *p, struct ummap_node *node, enum ummap_event why);
	/* The node to let go first (after NULL), or the next best after `after`; NULL: no more. Changes nothing
	 * that would make a walk from NULL to the end miss a node. */
	struct ummap_node *(*pick)(void *p, struct ummap_node *after);

	/* Called right before remove: a number from 0 to 3, which the library keeps for gone. 0: no use of it is expected, so
	 * that a second chance is not worth a copy. NULL: 0. */
	unsigned (*label)(void *p, struct ummap_node *node);
	/* The node was removed with this label, and its segment has left memory, too. What is left in the links now is what
	 * insert finds there; both are NULL where nothing was left, or the node has come another way meanwhile. NULL: no
	 * matter. */
	void (*gone)(void *p, struct ummap_node *node, unsigned label);
};

/* What the file ummap-policy-NAME.so of a policy exports. */
#pragma GCC visibility push(default)
extern const struct ummap_policy ummap_policy;
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
