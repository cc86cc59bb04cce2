/* SPDX-License-Identifier: BSD-3-Clause */
/* Sequential runs reuse the frames of segments that they have passed, until these segments are
 * needed again. */
#include "common.h"
#include "paging/mapping/lookup.h"
#include "paging/residency/recycle.h"

#include <criterion/criterion.h>

#define SEG ((size_t)64 * KIB)
#define SEGS ((size_t)1536)
#define SIZE (SEGS * SEG)
/* Bytes that a run keeps behind it, with segments that are in use, and readahead. */
#define KEPT_BYTES (RECYCLE_DISTANCE_BYTES + RECYCLE_DISTANCE_BYTES / 2)
/* Bytes that may differ because segments are in use or are not loaded by the run. */
#define SLACK (8 * MIB)

static uint8_t *map_within(size_t budget)
{
	int fd = memfd_create("recycle", MFD_CLOEXEC);
	uint8_t *m;

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, SIZE), 0);
	for (size_t i = 0; i < SEGS; i++) {
		uint8_t byte = (uint8_t)(i % 251);

		cr_assert_eq(pwrite(fd, &byte, 1, (off_t)(i * SEG)), 1);
	}
	set_env("UMMAP_ENGINE", "segv");
	set_budget(budget);
	m = map_file(fd, SIZE, SEG, PROT_READ, 0);
	close(fd);
	return m;
}

/* Loads all segments. Returns the bytes that were read. */
static uint64_t load_all(uint8_t *m)
{
	uint64_t before = stat_of(m).read_bytes;

	for (size_t i = 0; i < SEGS; i++)
		cr_assert_eq(((const volatile uint8_t *)m)[i * SEG], i % 251, "segment %zu", i);
	return stat_of(m).read_bytes - before;
}

static size_t in_memory(uint8_t *m)
{
	struct umstat st = stat_of(m);

	return st.resident_bytes + st.inactive_bytes;
}

static uint64_t wanted_until(uint8_t *m)
{
	struct mapping *map = map_find(m);
	uint64_t until = map->residency.wanted_until;

	map_leave(map);
	return until;
}

/* The budget holds everything: the first pass uses little memory, the second pass shows that the
 * segments are needed again, and the third one reads nothing. */
Test(recycle, what_fits_stays_from_the_second_pass_on)
{
	uint8_t *m = map_within(SIZE + SIZE / 4);

	cr_expect_geq(load_all(m), SIZE);
	cr_expect_leq(in_memory(m), KEPT_BYTES, "%zu", in_memory(m));
	cr_expect_geq(load_all(m), SIZE - KEPT_BYTES);
	cr_expect_geq(in_memory(m), SIZE - SLACK, "%zu", in_memory(m));
	cr_expect_leq(load_all(m), SLACK);
	cr_expect_leq(load_all(m), SLACK);
}

/* A segment that would have been evicted before its next use does not show a need. */
Test(recycle, what_does_not_fit_is_left_behind_each_time)
{
	uint8_t *m = map_within(SIZE / 2);

	for (int i = 0; i < 3; i++) {
		cr_expect_geq(load_all(m), SIZE - KEPT_BYTES - SLACK);
		cr_expect_eq(wanted_until(m), 0);
	}
}

/* A second reader follows the first one at a short distance. */
Test(recycle, what_is_loaded_again_is_kept)
{
	uint8_t *m = map_within(SIZE + SIZE / 4);
	size_t far = RECYCLE_DISTANCE_BYTES / SEG * 3 / 2;

	for (size_t i = 0; i < SEGS; i++) {
		cr_assert_eq(((const volatile uint8_t *)m)[i * SEG], i % 251);
		if (i >= far)
			cr_assert_eq(((const volatile uint8_t *)m)[(i - far) * SEG],
				     (i - far) % 251);
	}
	cr_expect_gt(wanted_until(m), 0);
	cr_expect_geq(in_memory(m), SIZE / 2, "%zu", in_memory(m));
}

/* A short run does not reuse its frames. */
Test(recycle, short_runs_stay)
{
	uint8_t *m = map_within(SIZE + SIZE / 4);

	for (size_t i = 0; i < RECYCLE_DISTANCE_BYTES / SEG; i++)
		cr_assert_eq(((const volatile uint8_t *)m)[i * SEG], i % 251);
	cr_expect_geq(in_memory(m), RECYCLE_DISTANCE_BYTES);
}
