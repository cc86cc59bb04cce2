/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulations of known policies, which see each use, as no pager can. Segments are numbers. */
#ifndef BENCH_SIMULATE_H
#define BENCH_SIMULATE_H

#include <stddef.h>
#include <stdint.h>

extern const char *const simulated_policies[]; /* names of policies; NULL ends the list */

/* Returns how many of n uses miss, with memory for `room` of the segments. */
size_t simulate(const char *policy, const uint32_t *uses, size_t n, uint32_t segments,
		uint32_t room);

#endif
