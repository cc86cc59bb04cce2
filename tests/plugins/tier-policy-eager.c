/* SPDX-License-Identifier: BSD-3-Clause */
/* A policy for tiers that promotes a segment at its first access after a sample, in place of any
 * other, and demotes none for loads. */
#include <ummap-policy.h>

static uint32_t eager_rank(const struct ummap_tier_use *use)
{
	return use->idle;
}

static uint32_t eager_promote(const struct ummap_tier_use *use)
{
	(void)use;
	return 0;
}

const struct ummap_tier_policy ummap_tier_policy = {
	.struct_size = sizeof(struct ummap_tier_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "eager",
	.load_rank = UMMAP_TIER_NEVER,
	.rank = eager_rank,
	.promote = eager_promote,
};
