/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MAPREDUCE_CLOCK_H
#define MAPREDUCE_CLOCK_H

#include <time.h>

/* Returns seconds since an arbitrary moment, which differs between machines. */
static inline double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
