/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers of which few are frequent: the probability of rank r is proportional to r^-0.99.
 * */
#ifndef BENCH_ZIPF_H
#define BENCH_ZIPF_H

#include <stddef.h>
#include <stdint.h>
/* Returns n numbers of [0, items). `ranks` determines their ranks, `seed` the sequence. */
/* n draws of [0, items). `ranks` says which has which rank, `seed` which are drawn. */
uint32_t *zipf_draws(uint32_t items, size_t n, uint64_t ranks, uint64_t seed);

#endif
