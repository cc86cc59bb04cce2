/* SPDX-License-Identifier: BSD-3-Clause */
/* cuts.h - what the suites share that cut the disk of power.h off at the requests of a workload. */
#ifndef TESTS_CUTS_H
#define TESTS_CUTS_H

#include <inttypes.h>

#include "power.h"

static uint64_t seed;

/* How many cuts there are to be. */
static inline size_t cuts_wanted(void)
{
	const char *text = getenv("UMMAP_TEST_CUTS");

	return text ? strtoull(text, NULL, 10) : 400;
}

/* Files beside stores are on that disk, too. */
static inline void cuts_begin(void)
{
	const char *text = getenv("UMMAP_TEST_SEED");

	seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	check(ummap_driver_register(&power_driver) == 0);
	side_driver = &power_driver;
	set_group();
}

/* What was recorded is cut off at each `step`th request, as long as there are cuts left. Returns how many are. */
static inline size_t cuts_at_all(const struct power_record *record, size_t cuts,
				 void (*check_one)(struct power_replay *replay, size_t k), size_t step)
{
	struct power_replay replay;

	power_replay_begin(&replay, record);
	for (size_t k = next_random(&seed) % step; k <= record->n && cuts > 0; k += step, cuts--)
		check_one(&replay, k);
	power_replay_end(&replay);
	return cuts;
}

#endif
