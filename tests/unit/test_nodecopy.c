/* SPDX-License-Identifier: BSD-3-Clause */
/* The order in which a node copy evicts its segments: how many uses of a sequence miss. */
#include <criterion/criterion.h>

#include <stdlib.h>

#include "common.h"
#include "nodecopy/table.h"

enum { SEGMENTS = 4096, SLOTS = 1024, USES = 100000 };

static bool lives(const struct nodecopy_view *view, uint64_t owner)
{
	(void)view;
	(void)owner;
	return true;
}

static void drop(const struct nodecopy_view *view, uint64_t segment)
{
	(void)view;
	(void)segment;
}

static struct nodecopy_view make_table(void)
{
	struct nodecopy_view view = { .owner = 1, .lives = lives, .drop = drop };

	view.table = calloc(1, nodecopy_table_bytes(SEGMENTS, SLOTS));
	cr_assert(view.table);
	nodecopy_init(view.table, SEGMENTS, SLOTS);
	return view;
}

/* Returns whether the use misses. */
static unsigned use(const struct nodecopy_view *view, uint64_t segment, enum nodecopy_load why)
{
	if (nodecopy_claim(view, segment, why, true) == CLAIM_RESIDENT)
		return 0;
	nodecopy_done(view, segment, 1, true);
	return 1;
}

/* A segment x, with a frequency of about 1/x. */
static uint32_t draw(uint64_t *random)
{
	unsigned bits = next_random(random) % 13;

	return (uint32_t)(next_random(random) % (1u << bits));
}

/* Whether a use misses if the segment that was loaded first is evicted. */
static unsigned use_first_in_first_out(uint64_t segment)
{
	static uint64_t loaded[SLOTS];
	static bool resident[SEGMENTS];
	static unsigned loads;
	uint64_t *slot = &loaded[loads % SLOTS];

	if (resident[segment])
		return 0;
	if (loads++ >= SLOTS)
		resident[*slot] = false;
	*slot = segment;
	resident[segment] = true;
	return 1;
}

/* Frequent segments stay longer than others, though uses of resident segments are not seen. */
Test(nodecopy, frequent_segments_stay)
{
	struct nodecopy_view view = make_table();
	unsigned misses = 0, first_in_first_out = 0;
	uint64_t random = 1;

	for (unsigned i = 0; i < USES; i++) {
		uint32_t segment = draw(&random) * 2654435761u % SEGMENTS;

		misses += use(&view, segment, LOAD_AT_RANDOM);
		first_in_first_out += use_first_in_first_out(segment);
	}
	cr_expect_leq(misses, first_in_first_out * 9 / 10, "%u, %u", misses, first_in_first_out);
	free(view.table);
}

/* Segments that are used in turn and have room stay, whichever segments were frequent before. */
Test(nodecopy, loop_that_fits_misses_little)
{
	struct nodecopy_view view = make_table();
	uint64_t random = 1;
	unsigned misses = 0;

	for (unsigned i = 0; i < USES; i++)
		use(&view, draw(&random), LOAD_AT_RANDOM);
	for (unsigned i = 0; i < USES; i++)
		misses += use(&view, i % (SLOTS / 10 * 9), LOAD_AT_RANDOM);
	cr_expect_leq(misses, 10 * SLOTS, "%u", misses);
	free(view.table);
}

/* A process that reads in order finds the segments that another one has read before it. */
Test(nodecopy, reader_follows_another_one)
{
	enum { BEHIND = SLOTS / 10 * 9 };
	struct nodecopy_view view = make_table();
	unsigned misses = 0;

	for (unsigned i = 0; i < SEGMENTS + BEHIND; i++) {
		if (i < SEGMENTS)
			use(&view, i, LOAD_IN_ORDER);
		if (i >= BEHIND)
			misses += use(&view, i - BEHIND, LOAD_IN_ORDER);
	}
	cr_expect_eq(misses, 0, "%u", misses);
	free(view.table);
}

/* An eighth of the slots can be prefetched, and stays until as many segments have been loaded. */
Test(nodecopy, prefetched_segments_stay)
{
	struct nodecopy_view view = make_table();
	unsigned misses = 0;

	for (unsigned i = 0; i < 2 * SLOTS; i++)
		use(&view, i, LOAD_AT_RANDOM);
	for (unsigned i = 0; i < SLOTS / 8; i++)
		cr_expect(use(&view, 3 * SLOTS + i, LOAD_PREFETCH));
	for (unsigned i = 0; i < SLOTS / 8; i++)
		use(&view, i, LOAD_AT_RANDOM);
	for (unsigned i = 0; i < SLOTS / 8; i++)
		misses += use(&view, 3 * SLOTS + i, LOAD_AT_RANDOM);
	cr_expect_eq(misses, 0, "%u", misses);
	free(view.table);
}

/* The copy has at most as many segments as the limit says, and uses all slots when it grows. */
Test(nodecopy, limit_changes)
{
	struct nodecopy_view view = make_table();

	for (unsigned i = 0; i < SLOTS; i++)
		use(&view, i, LOAD_AT_RANDOM);
	nodecopy_set_limit(view.table, SLOTS / 4);
	nodecopy_trim(&view);
	cr_expect_eq(nodecopy_count(view.table), SLOTS / 4);
	cr_expect(nodecopy_is_full(view.table));
	for (unsigned i = 0; i < SEGMENTS; i++)
		use(&view, i, LOAD_AT_RANDOM);
	cr_expect_eq(nodecopy_count(view.table), SLOTS / 4);
	nodecopy_set_limit(view.table, SLOTS / 2);
	cr_expect_not(nodecopy_is_full(view.table));
	for (unsigned i = 0, misses = 0; misses < SLOTS / 4; i++)
		misses += use(&view, i, LOAD_AT_RANDOM);
	cr_expect_eq(nodecopy_count(view.table), SLOTS / 2);
	cr_expect(nodecopy_is_full(view.table));
	free(view.table);
}
