/* SPDX-License-Identifier: BSD-3-Clause */
/* umprefetch: lists of small ranges in any order, which of them are loaded, and invalid lists. */
#include "common.h"

#include <criterion/criterion.h>

#define SEG ((size_t)4 * KIB)
#define SEGS ((size_t)4096)
#define SIZE (SEGS * SEG)
#define SEED 3
#define SMALL_BUDGET_SEGS ((size_t)1024) /* budget in segments that does not hold the file */

/* Maps a store in memory, which makes the tests fast. There is no readahead. */
static uint8_t *map_within(size_t budget)
{
	int fd = memfd_create("prefetch", MFD_CLOEXEC);
	uint8_t *m;

	cr_assert_geq(fd, 0);
	file_fill(fd, 0, SIZE, 0, SEED);
	set_budget(budget);
	set_env("UMMAP_CACHED", "copy");
	m = map_file(fd, SIZE, SEG, PROT_READ, 0);
	close(fd);
	cr_assert_eq(umadvise(m, SIZE, UMMAP_ADV_RANDOM), 0);
	return m;
}

static void end(uint8_t *m)
{
	cr_assert_eq(umunmap(m, 0), 0);
}

/* Puts all segments in random order. */
static void shuffle(size_t *order, uint64_t seed)
{
	for (size_t i = 0; i < SEGS; i++)
		order[i] = i;
	for (size_t i = SEGS - 1; i > 0; i--) {
		size_t k = next_random(&seed) % (i + 1), at = order[i];

		order[i] = order[k];
		order[k] = at;
	}
}
/* Prefetches a few bytes in the middle of each segment. */
/* A few bytes of each, in the middle. */
static int prefetch_segments(uint8_t *m, const size_t *order, size_t n)
{
	struct iovec *ranges = calloc(n, sizeof(*ranges));
	int result;

	for (size_t k = 0; k < n; k++)
		ranges[k] = (struct iovec){ m + order[k] * SEG + 1000, 8 };
	result = umprefetch(ranges, (int)n);
	free(ranges);
	return result;
}

static uint64_t wait_for(const uint8_t *m, uint64_t loads)
{
	for (double until = now() + 60; stat_of(m).readahead_loads < loads && now() < until;)
		pause_ms(2);
	return stat_of(m).readahead_loads;
}

/* Returns the number of loads after no further one has happened for half a second. */
static uint64_t wait_until_idle(const uint8_t *m)
{
	uint64_t before, loads = stat_of(m).readahead_loads;

	do {
		before = loads;
		pause_ms(500);
		loads = stat_of(m).readahead_loads;
	} while (loads != before);
	return loads;
}

static void look_at(const uint8_t *m, size_t i)
{
	uint8_t bytes[64];

	memcpy(bytes, m + i * SEG + 960, sizeof(bytes));
	check_bytes_at(bytes, sizeof(bytes), i * SEG + 960, SEED, __FILE__, __LINE__);
}

Test(prefetch, any_order)
{
	uint8_t *m = map_within(4 * SIZE);
	size_t order[SEGS], n = 1000;
	struct umstat st;

	shuffle(order, 1);
	cr_assert_eq(prefetch_segments(m, order, n), 0);
	cr_assert_eq(wait_for(m, n), n);
	st = stat_of(m);
	cr_expect_eq(st.read_bytes, n * SEG);
	cr_expect_eq(st.read_faults, 0);
	for (size_t k = 0; k < n; k++)
		look_at(m, order[k]);
	cr_expect_eq(stat_of(m).readahead_hits, n);
	cr_expect_eq(stat_of(m).read_requests, st.read_requests, "none is read again");
	look_at(m, order[n]);
	cr_expect_eq(stat_of(m).readahead_hits, n, "what was not in the list was not loaded");
	cr_expect_eq(stat_of(m).read_requests, st.read_requests + 1);
	end(m);
}

/* Adjacent segments are far apart in the list, and are read together. */
Test(prefetch, one_request_for_many)
{
	uint8_t *m = map_within(4 * SIZE);
	size_t order[SEGS];

	shuffle(order, 2);
	cr_assert_eq(prefetch_segments(m, order, SEGS), 0);
	cr_assert_eq(wait_for(m, SEGS), SEGS);
	cr_expect_leq(stat_of(m).read_requests, SEGS / 8, "%lu",
		      (unsigned long)stat_of(m).read_requests);
	for (size_t i = 0; i < SEGS; i++)
		look_at(m, i);
	cr_expect_eq(stat_of(m).readahead_hits, SEGS);
	end(m);
}

Test(prefetch, several_times)
{
	uint8_t *m = map_within(4 * SIZE);
	size_t order[3000];

	for (size_t k = 0; k < 3000; k++)
		order[k] = k * 7 % 500;
	cr_assert_eq(prefetch_segments(m, order, 3000), 0);
	cr_assert_eq(wait_for(m, 500), 500);
	for (size_t i = 0; i < 400; i++)
		look_at(m, i);
	cr_assert_eq(prefetch_segments(m, order, 3000), 0,
		     "some are mapped, and some were loaded ahead");
	cr_expect_eq(wait_until_idle(m), 500);
	cr_expect_eq(stat_of(m).read_bytes, 500 * SEG);
	end(m);
}

/* Segments that are in the list several times do not displace others. */
Test(prefetch, several_times_in_little_memory)
{
	uint8_t *m = map_within(SMALL_BUDGET_SEGS * SEG);
	size_t order[3 * SEGS];

	for (size_t k = 0; k < 3 * SEGS; k++)
		order[k] = k < 2 * SEGS ? 5 : k % 300;
	cr_assert_eq(prefetch_segments(m, order, 3 * SEGS), 0);
	cr_expect_eq(wait_for(m, 300), 300);
	end(m);
}

Test(prefetch, ranges_of_many_segments)
{
	uint8_t *m = map_within(4 * SIZE);
	struct iovec ranges[] = {
		{ m + 100 * SEG, 50 * SEG },
		{ m + 120 * SEG + 1, 60 * SEG },
		{ m + 10 * SEG - 1, 2 },
		{ m + SIZE - 1, 1 },
	};

	cr_assert_eq(umprefetch(ranges, 4), 0);
	cr_assert_eq(wait_for(m, 84), 84);
	cr_expect_eq(wait_until_idle(m), 84);
	for (size_t i = 100; i < 181; i++)
		look_at(m, i);
	look_at(m, 9);
	look_at(m, 10);
	look_at(m, SEGS - 1);
	cr_expect_eq(stat_of(m).readahead_hits, 84);
	end(m);
}

Test(prefetch, what_comes_first)
{
	uint8_t *m = map_within(SMALL_BUDGET_SEGS * SEG);
	size_t order[SEGS];
	uint64_t loads, hits;

	for (size_t k = 0; k < SEGS; k++)
		order[k] = SEGS - 1 - k;
	cr_assert_eq(prefetch_segments(m, order, SEGS), 0);
	wait_for(m, SMALL_BUDGET_SEGS * 3 / 4);
	loads = wait_until_idle(m);
	cr_expect_leq(loads, SMALL_BUDGET_SEGS);
	cr_expect_geq(loads, SMALL_BUDGET_SEGS * 3 / 4, "%lu", (unsigned long)loads);
	for (size_t k = 0; k < SMALL_BUDGET_SEGS; k++)
		look_at(m, order[k]);
	hits = stat_of(m).readahead_hits;
	cr_expect_geq(hits, SMALL_BUDGET_SEGS * 3 / 4, "%lu", (unsigned long)hits);
	for (size_t k = SMALL_BUDGET_SEGS; k < SEGS; k++)
		look_at(m, order[k]);
	cr_expect_eq(stat_of(m).readahead_hits, hits, "the rest is ignored");
	end(m);
}

/* If all memory is in use, a list gets a part of it. */
Test(prefetch, in_full_memory)
{
	uint8_t *m = map_within(SMALL_BUDGET_SEGS * SEG);
	size_t order[64];

	for (size_t i = 0; i < 2 * SMALL_BUDGET_SEGS; i++)
		look_at(m, i);
	for (size_t k = 0; k < 64; k++)
		order[k] = 3 * SMALL_BUDGET_SEGS + 5 * k;
	cr_assert_eq(prefetch_segments(m, order, 64), 0);
	cr_expect_eq(wait_for(m, 64), 64);
	cr_expect_leq(stat_of(NULL).held_bytes,
		      SMALL_BUDGET_SEGS * SEG + stat_of(NULL).over_budget_peak);
	for (size_t k = 0; k < 64; k++)
		look_at(m, order[k]);
	cr_expect_eq(stat_of(m).readahead_hits, 64);
	end(m);
}

Test(prefetch, refused)
{
	uint8_t *m = map_within(4 * SIZE), *other = map_within(4 * SIZE);
	struct iovec ranges[2] = { { m, 1 }, { m + SEG, 1 } };
	uint8_t mine[16];

	check_fails(umprefetch(ranges, -1), EINVAL);
	check_fails(umprefetch(NULL, 1), EINVAL);
	cr_expect_eq(umprefetch(NULL, 0), 0);
	cr_expect_eq(umprefetch(ranges, 0), 0);
	ranges[0].iov_base = mine;
	check_fails(umprefetch(ranges, 2), EINVAL);
	ranges[0] = (struct iovec){ m, 0 };
	check_fails(umprefetch(ranges, 2), EINVAL);
	ranges[0].iov_len = 1;
	ranges[1].iov_len = 0;
	check_fails(umprefetch(ranges, 2), EINVAL);
	ranges[1] = (struct iovec){ mine, 1 };
	check_fails(umprefetch(ranges, 2), ENOMEM);
	ranges[1] = (struct iovec){ other, 1 };
	check_fails(umprefetch(ranges, 2), ENOMEM);
	ranges[1] = (struct iovec){ m + SIZE, 1 };
	check_fails(umprefetch(ranges, 2), ENOMEM);
	ranges[1] = (struct iovec){ m + SEG, SIZE };
	check_fails(umprefetch(ranges, 2), ENOMEM);
	ranges[1] = (struct iovec){ m + SEG, SIZE_MAX };
	check_fails(umprefetch(ranges, 2), ENOMEM);
	cr_expect_eq(wait_until_idle(m), 0, "nothing of a wrong list is loaded");
	end(m);
	end(other);
}

/* The list itself may be in a mapping, and cause faults. */
Test(prefetch, a_list_in_a_mapping)
{
	int fd = memfd_create("list", MFD_CLOEXEC);
	uint8_t *m = map_within(4 * SIZE);
	struct iovec *ranges;

	cr_assert_eq(ftruncate(fd, SIZE), 0);
	ranges = (struct iovec *)map_file(fd, SIZE, SEG, READ_WRITE, 0);
	close(fd);
	for (size_t k = 0; k < 1000; k++)
		ranges[k] = (struct iovec){ m + 3 * k * SEG, 1 };
	cr_assert_eq(umsync(ranges, 1), 0);
	cr_assert_eq(umprefetch(ranges, 1000), 0);
	cr_expect_eq(wait_for(m, 1000), 1000);
	end((uint8_t *)ranges);
	end(m);
}

struct reader {
	uint8_t *m;
	uint64_t seed;
};

static void *ask_and_look(void *arg)
{
	struct reader *r = arg;
	size_t order[200];

	for (size_t round = 0; round < by_time(40, 400); round++) {
		for (size_t k = 0; k < 200; k++)
			order[k] = next_random(&r->seed) % SEGS;
		check(prefetch_segments(r->m, order, 200) == 0);
		for (size_t k = 0; k < 200; k++)
			look_at(r->m, order[k]);
	}
	return NULL;
}

/* Each thread evicts segments that other threads have prefetched. */
Test(prefetch, by_threads)
{
	uint8_t *m = map_within(SMALL_BUDGET_SEGS / 2 * SEG);
	struct reader readers[4];
	pthread_t threads[4];

	for (uint64_t t = 0; t < 4; t++) {
		readers[t] = (struct reader){ m, t + 1 };
		cr_assert_eq(pthread_create(&threads[t], NULL, ask_and_look, &readers[t]), 0);
	}
	for (size_t t = 0; t < 4; t++)
		pthread_join(threads[t], NULL);
	cr_expect_gt(stat_of(m).readahead_hits, 0);
	end(m);
}

/* A mapping that ends does not wait for a list, and jobs of the list do not touch it afterwards. */
Test(prefetch, and_the_end)
{
	size_t order[SEGS];

	shuffle(order, 9);
	for (size_t round = 0; round < by_time(30, 300); round++) {
		uint8_t *m = map_within(4 * SIZE);

		cr_assert_eq(prefetch_segments(m, order, SEGS), 0);
		cr_assert_eq(prefetch_segments(m, order + SEGS / 2, SEGS / 2), 0);
		end(m);
	}
	cr_expect_eq(stat_of(NULL).inactive_bytes, 0);
	cr_expect_eq(stat_of(NULL).mappings, 0);
}

/* Page-cache mappings need no copies. The engine uffd has none. */
Test(prefetch, not_what_is_shown)
{
	static size_t order[SEGS];
	const char *engine = getenv("UMMAP_ENGINE");
	uint8_t *m;
	int fd;

	if (engine && strcmp(engine, "uffd") == 0)
		return;
	fd = memfd_create("prefetch", MFD_CLOEXEC);
	file_fill(fd, 0, SIZE, 0, SEED);
	set_budget(2 * SIZE);
	m = map_file(fd, SIZE, SEG, PROT_READ, 0);
	close(fd);
	cr_assert_eq(umadvise(m, SIZE, UMMAP_ADV_RANDOM), 0);
	shuffle(order, 5);
	cr_assert_eq(prefetch_segments(m, order, SEGS), 0);
	cr_assert_eq(wait_until_idle(m), 0);
	check_bytes(m, SIZE, 0, SEED);
	cr_assert(stat_of(m).pagecache_bytes == SIZE && stat_of(m).read_requests == 0);
	end(m);
}
