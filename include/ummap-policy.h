/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-policy.h - the interface for authors of policies. A policy proposes which resident segment
 * the library should evict first.
 *
 * Each group of mappings has a policy object of its own, and so has each mapping outside of groups.
 * All calls except create and destroy run under one lock of the library and possibly inside a
 * signal handler: they must not do I/O, allocate memory or block. A policy learns of faults, not of
 * accesses to resident segments. If it proposes a segment that the program still uses, the next
 * access makes the segment resident again at little cost, and is reported to the policy. A policy
 * knows segments only as nodes, and may keep the nodes in lists by their two links. See
 * ummap-policy(3).
 */
#ifndef UMMAP_POLICY_H
#define UMMAP_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMMAP_POLICY_ABI 1

/* Node of a segment, aligned to 8 bytes. The links belong to the policy from insert to remove, and
 * from gone to the next insert; otherwise they belong to the library. */
struct ummap_node {
	struct ummap_node *prev, *next;
};

/* Events, the argument `why` of insert and touch. */
enum ummap_event {
	UMMAP_EV_READ,    /* insert: the program accessed the segment, which is clean */
	UMMAP_EV_WRITE,   /* insert: the program accessed the segment, which is dirty now */
	UMMAP_EV_AHEAD,   /* insert: the segment was read ahead, and mapped with an accessed one */
	UMMAP_EV_DIRTIED, /* touch: the clean segment became dirty, usually by a store */
	UMMAP_EV_CLEANED, /* touch: the changes of the segment have been written */
	UMMAP_EV_RETURN   /* touch, right after insert: the segment was inactive and was accessed */
};

/* Table of a policy. touch, label and gone are optional: NULL means that the policy ignores the
 * event, or that the label is 0. All other calls are required. */
struct ummap_policy {
	size_t struct_size; /* sizeof(struct ummap_policy); releases only append members */
	uint32_t abi;       /* UMMAP_POLICY_ABI */
	const char *name;   /* name in attr.policy, such as "fifo" */
	const char *help;   /* description in one line; NULL: none */

	/* Creates a policy object in *p. args is the text after "name:", such as "seed=7", or "".
	 * Returns 0 or a negative errno value, which is -EINVAL if args is not valid. */
	int (*create)(const char *args, void **p);
	/* Frees the object, from which all nodes have been removed. */
	void (*destroy)(void *p);
	/* Adds the node of a segment that has become resident. */
	void (*insert)(void *p, struct ummap_node *node, enum ummap_event why);
	/* Removes the node of a segment that is resident no longer. */
	void (*remove)(void *p, struct ummap_node *node);
	/* Reports an event of a resident node. */
	void (*touch)(void *p, struct ummap_node *node, enum ummap_event why);
	/* Returns the node to evict first if after is NULL, otherwise the next best one after
	 * `after`, or NULL at the end. A walk from NULL to the end must return each node once. */
	struct ummap_node *(*pick)(void *p, struct ummap_node *after);

	/* Returns a label from 0 to 3, which the library keeps for gone. Called before remove. 0
	 * means that the policy expects no further use of the segment. With the engine sigbus,
	 * which must copy a segment to make it inactive, a clean segment with the label 0 leaves
	 * memory at once. */
	unsigned (*label)(void *p, struct ummap_node *node);
	/* Reports that the segment of a removed node has left memory. The policy may store 16
	 * bytes in the links, which the next insert finds there. insert finds NULL in both links
	 * if the policy stored nothing, or if readahead has loaded the segment in between. */
	void (*gone)(void *p, struct ummap_node *node, unsigned label);
};

/* Table that the file ummap-policy-NAME.so exports. */
#pragma GCC visibility push(default)
extern const struct ummap_policy ummap_policy;
#pragma GCC visibility pop

/* Use of a segment, as the samples of its tier tell it (ummap-tiers(7)). Times are in ms. */
struct ummap_tier_use {
	uint32_t idle;     /* time since a sample that no access has followed; 0: there is none */
	uint32_t interval; /* time from the last sample to the access after it; 0: unknown */
	uint32_t earlier;  /* the same for the sample before that one; 0: unknown */
};

/* A rank that no segment has. */
#define UMMAP_TIER_NEVER UINT32_MAX

/* Table of a policy for tiers. A segment has a rank: segments of a high rank leave a fast tier
 * first. The calls may run inside a signal handler and at the same time; they have no state. If
 * both are NULL, the library takes no samples, and segments stay where they were loaded. */
struct ummap_tier_policy {
	size_t struct_size; /* sizeof(struct ummap_tier_policy); releases only append members */
	uint32_t abi;       /* UMMAP_POLICY_ABI */
	const char *name;   /* value of UMMAP_TIERS_POLICY */
	const char *help;   /* description in one line; NULL: none */
	/* Lowest rank of a segment that is demoted for one that is loaded; UMMAP_TIER_NEVER: a load
	 * demotes none. */
	uint32_t load_rank;
	/* Returns the rank of a segment. */
	uint32_t (*rank)(const struct ummap_tier_use *use);
	/* A segment that is not in the fastest tier was accessed after a sample. Returns the lowest
	 * rank of a segment of the fastest tier that is demoted for it if that is full;
	 * UMMAP_TIER_NEVER: the accessed segment stays in its tier. */
	uint32_t (*promote)(const struct ummap_tier_use *use);
};

/* Table that the file ummap-tier-policy-NAME.so exports. */
#pragma GCC visibility push(default)
extern const struct ummap_tier_policy ummap_tier_policy;
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
