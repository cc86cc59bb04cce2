/* SPDX-License-Identifier: BSD-3-Clause */
/* The smaller and the larger of two numbers. */
#ifndef COMMON_MINMAX_H
#define COMMON_MINMAX_H

#include <stddef.h>
#include <stdint.h>

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
