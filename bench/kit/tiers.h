/* SPDX-License-Identifier: BSD-3-Clause */
/* A simulation of three tiers of memory that hold all segments of a trace. */
#ifndef BENCH_TIERS_H
#define BENCH_TIERS_H

#include <stddef.h>
#include <stdint.h>

struct tier_result {
	uint64_t uses[3];  /* uses of segments in each tier */
	uint64_t copies;   /* segments copied between tiers */
	double seconds;    /* time of uses, copies and samples */
};

/* Policies: first-touch, LRU (a segment comes to the first tier with each use), Belady (as LRU, but
 * the segment that leaves a tier is that whose next use is the latest, and copies cost nothing:
 * a bound that no policy reaches), ummap (as the library does). NULL ends the list. */
extern const char *const tier_policies[];

/* room: segments for which the first two tiers have memory; the third one has room for the rest. */
struct tier_result simulate_tiers(const char *policy, const uint32_t *uses, size_t n,
				  uint32_t segments, const uint32_t room[2]);

#endif
