/* SPDX-License-Identifier: BSD-3-Clause */
/* The default policy keeps segments that are used again, and not those that are used once. */
#include "common.h"

#include <criterion/criterion.h>

#define SEG (64 * KIB)
#define BUDGET 64 /* segments */
#define HOT 8     /* segments that are used again and again */
#define COLD 4096 /* segments that are used once */

/* Returns the number of segments that were loaded from the store. */
static uint64_t count_loads(const uint8_t *m)
{
	struct umstat st = stat_of(m);

	return st.read_bytes / SEG;
}

static uint8_t *map(const char *policy)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[512];
	void *addr;
	int fd = temp_named("f", (HOT + COLD) * SEG, path);
	uint8_t byte = 1;

	/* Data in each segment, because holes are not loaded. */
	for (size_t i = 0; i < HOT + COLD; i++)
		check(pwrite(fd, &byte, 1, (off_t)(i * SEG)) == 1);
	close(fd);
	set_budget(BUDGET * SEG);
	set_env("UMMAP_READAHEAD", "0");
	attr.seg_size = SEG;
	attr.policy = policy;
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(ummap_open(uri, (HOT + COLD) * SEG, 0, PROT_READ, &attr, &addr) == 0);
	return addr;
}

/* Accesses hot and cold segments alternately. Returns how often hot segments were loaded. */
static uint64_t hot_loads(const uint8_t *m)
{
	uint64_t before = count_loads(m);

	for (size_t cold = 0; cold < COLD; cold++) {
		check(m[(HOT + cold) * SEG] == 1);
		check(m[cold % HOT * SEG] == 1);
	}
	return count_loads(m) - before - COLD;
}

Test(hot, stays_by_default)
{
	/* With fifo, there are 550 loads with sigbus, 96 with segv. */
	cr_expect_leq(hot_loads(map(NULL)), 4 * HOT);
}

/* Accesses 16 times the budget, a few segments often. Returns the number of loads. */
static uint64_t skewed_loads(uint8_t *m, uint64_t *second_chances)
{
	uint64_t before = count_loads(m);

	for (size_t i = 0; i < 15000; i++) {
		uint64_t at = 16 * BUDGET;

		/* The product of three random numbers: half of them are below an eighth of the
		 * mean. */
		for (int k = 0; k < 3; k++)
			at = at * (mix(3 * i + (size_t)k) & 0xffff) >> 16;
		check(m[at * SEG] == 1);
	}
	*second_chances = stat_of(m).inactive_hits;
	return count_loads(m) - before;
}

/* A segment that the policy keeps has a second chance, also if the engine drops clean frames
 * (sigbus). */
Test(hot, fewer_are_loaded_than_with_fifo)
{
	uint64_t chances, none;
	uint8_t *m = map(NULL);
	uint64_t loaded = skewed_loads(m, &chances), fifo;

	check(umunmap(m, 0) == 0);
	fifo = skewed_loads(map("fifo"), &none);
	cr_expect_lt(loaded * 100, fifo * 97, "%lu, with fifo %lu", loaded, fifo);
	cr_expect_gt(chances, 0);
}
