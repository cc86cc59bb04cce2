/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_cache_index.c - the index of cache+ by itself: what is found where, which slot is free when, and which clean slot goes
 * first (S3-FIFO).
 */
#include <criterion/criterion.h>

#include "drivers/cache_index.h"
#include "common.h"

#define SLOTS 200

static struct cache_index ix;

static void begin(void)
{
	check(cache_index_init(&ix, SLOTS) == 0);
}

static void end(void)
{
	cache_index_end(&ix);
}

TestSuite(cache_index, .init = begin, .fini = end);

static uint32_t put(uint64_t block, bool dirty)
{
	uint32_t s = cache_take(&ix, block, dirty);

	check(s != CACHE_NO_SLOT && ix.slot[s].list == CACHE_PRIVATE);
	cache_put(&ix, s, block, dirty, 1, 0);
	return s;
}

static bool has(uint64_t block)
{
	return cache_find(&ix, block, false) != CACHE_NO_SLOT;
}

/* As a pass does that has written all records. */
static void pass(void)
{
	for (uint32_t s = 0; s < SLOTS; s++) {
		ix.changed[s / 64] &= ~((uint64_t)1 << s % 64);
		cache_settle(&ix, s);
	}
}

static uint32_t all(void)
{
	uint32_t n = 0;

	for (int l = 0; l < CACHE_LISTS; l++)
		n += ix.list[l].count;
	return n;
}

/* Makes room for a block, which is read once. */
static void read_in(uint64_t block)
{
	if (!ix.list[CACHE_FREE].count) {
		check(cache_evict(&ix));
		pass();
	}
	put(block, false);
}

/* What has no sectors any more is empty when nobody has it, and of what was read often the next one comes to the same queue. */
Test(cache_index, slots_without_sectors_go)
{
	uint32_t s = put(1, false);

	cache_pin(&ix, s);
	cache_set_valid(&ix, s, 0);
	cache_shed(&ix, s);
	check(has(1), "somebody fills it");
	cache_unpin(&ix, s);
	check(!has(1) && ix.slot[s].list == CACHE_FREEING && all() == SLOTS);

	s = put(2, false);
	cache_shed(&ix, s);
	check(has(2), "it has one");
	for (int i = 0; i < 2; i++)
		cache_hit(&ix, s);
	for (uint64_t b = 3; !ix.list[CACHE_MAIN].count; b++)
		read_in(b);
	check(ix.slot[s].list == CACHE_MAIN);
	cache_set_valid(&ix, s, 0);
	cache_shed(&ix, s);
	check(!has(2));
	pass();
	s = put(2, false);
	check(ix.slot[s].list == CACHE_MAIN);

	cache_drop(&ix, s);
	pass();
	s = put(1000, true);
	cache_set_valid(&ix, s, 0);
	cache_shed(&ix, s);
	check(ix.slot[s].list == CACHE_DIRTY, "dirty ones are not of its business");
}

/* A block has a slot of each kind, and many that share a bucket are told apart. */
Test(cache_index, finds_what_was_put)
{
	for (uint64_t b = 0; b < SLOTS / 2; b++) {
		put(b << 40, false);
		put(b << 40, true);
	}
	check(cache_take(&ix, 1, false) == CACHE_NO_SLOT, "all are used");
	for (uint64_t b = 0; b < SLOTS / 2; b++) {
		for (int dirty = 0; dirty < 2; dirty++) {
			uint32_t s = cache_find(&ix, b << 40, dirty);

			check(s != CACHE_NO_SLOT && ix.slot[s].key == (b << 41 | (uint64_t)dirty));
			check(cache_is_clean(&ix, s) == !dirty);
		}
	}
	check(!has(1) && ix.list[CACHE_DIRTY].count == SLOTS / 2 && ix.list[CACHE_SMALL].count == SLOTS / 2);
}

/* Neighbours lie side by side, so that they are read in one request. */
Test(cache_index, neighbours_lie_side_by_side)
{
	uint32_t a = put(10, false), other = put(500, true), b;

	check(other == a + 1);
	check(put(501, true) == other + 1);
	b = cache_take(&ix, 11, false);
	check(b != CACHE_NO_SLOT && b != a + 1, "that one is taken");
	cache_untake(&ix, b);
	check(ix.list[CACHE_FREE].count == SLOTS - 3 && all() == SLOTS);
}

/* A slot that was emptied is used again when its record says so, and nobody reads it any more. */
Test(cache_index, emptied_slots_wait_for_their_record)
{
	uint32_t s = put(1, false);

	pass();
	cache_pin(&ix, s);
	cache_drop(&ix, s);
	check(!has(1) && ix.slot[s].list == CACHE_FREEING && cache_valid(&ix.slot[s]) == 0);
	cache_unpin(&ix, s);
	check(ix.slot[s].list == CACHE_FREEING, "its record is not written");
	pass();
	check(ix.slot[s].list == CACHE_FREE);

	s = put(2, false);
	cache_pin(&ix, s);
	cache_drop(&ix, s);
	pass();
	check(ix.slot[s].list == CACHE_FREEING, "somebody reads it");
	cache_unpin(&ix, s);
	check(ix.slot[s].list == CACHE_FREE);
}

/* The one that is longest dirty comes first; what was written back is found as clean. */
Test(cache_index, dirty_slots_are_in_order)
{
	uint32_t a = put(1, true), b = put(2, true);

	check(ix.list[CACHE_DIRTY].first == a && !cache_evict(&ix), "dirty ones do not go");
	cache_stay_dirty(&ix, a, 7);
	check(ix.list[CACHE_DIRTY].first == b && ix.slot[a].since == 7);
	cache_make_clean(&ix, b);
	check(cache_find(&ix, 2, true) == CACHE_NO_SLOT && cache_find(&ix, 2, false) == b && cache_is_clean(&ix, b));
	check(ix.list[CACHE_DIRTY].first == a && ix.list[CACHE_DIRTY].count == 1);
	check(cache_evict(&ix) && !has(2) && cache_find(&ix, 1, true) == a);
}

/* What is on disk is taken over, and its record need not be written again. */
Test(cache_index, restores_records)
{
	const uint64_t valid[2] = { 5, (uint64_t)1 << 63 };

	cache_restore(&ix, 70, 9 << 1, valid, 0);
	cache_restore(&ix, 71, 9 << 1 | 1, valid, 3);
	check(cache_find(&ix, 9, false) == 70 && cache_find(&ix, 9, true) == 71 && ix.slot[71].since == 3);
	check(cache_valid(&ix.slot[70]) == ((cache_mask)1 << 127 | 5) && ix.changed[1] == 0);
	check(ix.list[CACHE_FREE].count == SLOTS - 2 && all() == SLOTS);
}

/* A scan that is larger than the cache pushes out none of what was read twice. */
Test(cache_index, a_scan_leaves_what_is_read_often)
{
	for (uint64_t b = 0; b < SLOTS / 2; b++) {
		uint32_t s = put(b, false);

		cache_hit(&ix, s);
		cache_hit(&ix, s);
	}
	for (uint64_t b = 1000; b < 1000 + 10 * SLOTS; b++)
		read_in(b);
	for (uint64_t b = 0; b < SLOTS / 2; b++)
		check(has(b), "block %ju", (uintmax_t)b);
	check(all() == SLOTS && ix.list[CACHE_MAIN].count == SLOTS / 2);
}

/* In the small queue, what came first goes first. */
Test(cache_index, what_is_read_once_leaves_in_order)
{
	for (uint64_t b = 0; b < SLOTS; b++)
		put(b, false);
	for (uint64_t b = 0; b < SLOTS; b++) {
		check(has(b) && cache_evict(&ix) && !has(b), "block %ju", (uintmax_t)b);
		check(b + 1 == SLOTS || has(b + 1));
	}
	check(!cache_evict(&ix), "there is nothing left");
}

/* What comes back soon after it had left goes to the main queue; what comes back late does not. */
Test(cache_index, ghosts_are_remembered_for_a_while)
{
	for (uint64_t b = 0; b < SLOTS + 10; b++)
		read_in(b);
	check(!has(0) && !has(9) && has(10));
	check(cache_evict(&ix));
	pass();
	check(ix.slot[put(9, false)].list == CACHE_MAIN, "it left as one of the last");
	check(cache_evict(&ix));
	pass();
	for (uint64_t b = 1000; b < 1000 + 3 * SLOTS; b++)
		read_in(b);
	check(!has(5) && cache_evict(&ix));
	pass();
	check(ix.slot[put(5, false)].list == CACHE_SMALL, "it left long ago");
}

/* What has left is no ghost any more when as many others have left as there can be ghosts, also where none of them has taken its
 * place meanwhile. */
Test(cache_index, ghosts_grow_old)
{
	enum { TRIALS = 60 };
	unsigned kept[3] = { 0 };

	for (unsigned age = 0; age < 3; age++) {
		for (uint64_t t = 0; t < TRIALS; t++) {
			uint64_t block = t << 20, others = age * (uint64_t)(ix.ghosts + 1) + 5;

			end();
			begin();
			for (uint64_t b = block; b < block + SLOTS + 1 + others; b++)
				read_in(b);
			check(!has(block) && cache_evict(&ix));
			pass();
			kept[age] += ix.slot[put(block, false)].list == CACHE_MAIN;
		}
	}
	check(kept[0] == TRIALS && kept[1] == 0 && kept[2] == 0, "%u, %u and %u of %d", kept[0], kept[1], kept[2], TRIALS);
}

/* In the main queue one goes round once for each time that it was read, and pinned ones stay. */
Test(cache_index, the_main_queue_goes_round)
{
	uint32_t s[3];

	for (uint64_t b = 0; b < 3; b++) {
		s[b] = put(b, false);
		cache_hit(&ix, s[b]);
		cache_hit(&ix, s[b]);
	}
	/* The first passes take them to the main queue. */
	put(100, false);
	check(cache_evict(&ix) && !has(100) && ix.list[CACHE_MAIN].count == 3);
	for (int i = 0; i < 10; i++)
		cache_hit(&ix, s[0]);
	check(ix.slot[s[0]].freq == CACHE_FREQ_MAX);
	cache_pin(&ix, s[1]);
	check(cache_evict(&ix) && has(0) && has(1) && !has(2));
	check(cache_evict(&ix) && !has(0) && has(1));
	check(!cache_evict(&ix) && has(1), "somebody reads it");
	cache_unpin(&ix, s[1]);
	check(cache_evict(&ix) && !has(1));
}
