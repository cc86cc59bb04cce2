/* SPDX-License-Identifier: BSD-3-Clause */
/* The policies for tiers. lru promotes segments that are used often, and demotes cold ones; static
 * leaves all segments where they were loaded. */
#include "ummap-policy.h"

extern const struct ummap_tier_policy ummap_tier_policy_lru, ummap_tier_policy_static;

/* Rank of a segment that was not used for a second after its sample. */
#define COLD_RANK 10
/* A segment is promoted in place of one that is used less often by this power of 2: a promotion
 * costs two copies. */
#define PROMOTION_RANKS 2

/* Ranks are logarithms of times. */
static uint32_t rank_of(uint32_t ms)
{
	return 64 - (uint32_t)__builtin_clzll((uint64_t)ms + 1);
}

/* A segment that was not sampled has rank 1. */
static uint32_t lru_rank(const struct ummap_tier_use *use)
{
	return rank_of(use->idle ? use->idle : use->interval);
}

/* One short time may be chance. */
static uint32_t lru_promote(const struct ummap_tier_use *use)
{
	uint32_t longer = use->interval > use->earlier ? use->interval : use->earlier;

	return use->earlier ? rank_of(longer) + PROMOTION_RANKS : UMMAP_TIER_NEVER;
}

const struct ummap_tier_policy ummap_tier_policy_lru = {
	.struct_size = sizeof(struct ummap_tier_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "lru",
	.help = "promotes segments that are used often, and demotes cold ones",
	.load_rank = COLD_RANK,
	.rank = lru_rank,
	.promote = lru_promote,
};

const struct ummap_tier_policy ummap_tier_policy_static = {
	.struct_size = sizeof(struct ummap_tier_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "static",
	.help = "leaves segments where they were loaded",
	.load_rank = UMMAP_TIER_NEVER,
};
