/* SPDX-License-Identifier: BSD-3-Clause */
/* Few of many are drawn often: the one of rank r with a probability of 1 by r to the power of 0.99. */
#ifndef BENCH_ZIPF_H
#define BENCH_ZIPF_H

#include <stddef.h>
#include <stdint.h>

/* n draws of [0, items). `ranks` says which has which rank, `seed` which are drawn. */
uint32_t *zipf_draws(uint32_t items, size_t n, uint64_t ranks, uint64_t seed);

#endif
