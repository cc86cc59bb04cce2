/* SPDX-License-Identifier: BSD-3-Clause */
/* Policies of the field, simulated: what each lets go while it sees every use, as no pager can. Segments are numbers. */
#ifndef BENCH_SIMULATE_H
#define BENCH_SIMULATE_H

#include <stddef.h>
#include <stdint.h>

extern const char *const simulated_policies[]; /* up to NULL */

/* How many of n uses miss, with room for so many segments out of `segments`. */
size_t simulate(const char *policy, const uint32_t *uses, size_t n, uint32_t segments, uint32_t room);

#endif
