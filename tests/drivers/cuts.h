/* SPDX-License-Identifier: BSD-3-Clause */
/* For test suites that cut off the disk of power.h at the requests of a workload. */
#ifndef TESTS_CUTS_H
#define TESTS_CUTS_H

#include <inttypes.h>

#include "power.h"

static uint64_t seed;

/* Returns the number of cuts to test. */
static inline size_t cuts_wanted(void)
{
	const char *text = getenv("UMMAP_TEST_CUTS");

	return text ? strtoull(text, NULL, 10) : 400;
}

/* Files beside stores are on the disk of power.h, too. */
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

/* Cuts off the recorded requests at each `step`th one, until no cuts are left. Returns how many are
 * left. */
static inline size_t cuts_at_all(const struct power_record *record, size_t cuts,
				 void (*check_one)(struct power_replay *replay, size_t k),
				 size_t step)
{
	struct power_replay replay;

	power_replay_begin(&replay, record);
	for (size_t k = next_random(&seed) % step; k <= record->n && cuts > 0; k += step, cuts--)
		check_one(&replay, k);
	power_replay_end(&replay);
	return cuts;
}

#endif
