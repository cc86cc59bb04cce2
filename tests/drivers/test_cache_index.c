/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_cache_index.c - the index of cache+ by itself: which slot has which block, and which clean
 * slot is evicted next (S3-FIFO).
 */
#include <criterion/criterion.h>

#include "drivers/overlay/cache_index.h"
#include "common.h"

#define SLOTS 200

static struct cache_index ix;
static uint32_t unused[SLOTS], nunused;

static void begin(void)
{
	check(cache_index_init(&ix, SLOTS) == 0);
	for (nunused = 0; nunused < SLOTS; nunused++)
		unused[nunused] = SLOTS - 1 - nunused;
}

static void end(void)
{
	cache_index_end(&ix);
}

TestSuite(cache_index, .init = begin, .fini = end);

static uint32_t put(uint64_t block, bool dirty)
{
	uint32_t s;

	check(nunused > 0);
	s = unused[--nunused];
	check(ix.slots[s].key == CACHE_NO_KEY);
	cache_add(&ix, s, block, dirty, 0);
	return s;
}

static bool has(uint64_t block)
{
	return cache_find(&ix, block, false) != CACHE_NO_SLOT;
}

static bool evict(void)
{
	uint32_t s = cache_evict(&ix);

	if (s == CACHE_NO_SLOT)
		return false;
	check(ix.slots[s].key == CACHE_NO_KEY);
	unused[nunused++] = s;
	return true;
}

static uint32_t count_listed(void)
{
	uint32_t n = 0;

	for (int l = 0; l < CACHE_LISTS; l++)
		n += ix.lists[l].count;
	return n;
}

/* Makes room for a block, which is read once. */
static void read_in(uint64_t block)
{
	if (!nunused)
		check(evict());
	put(block, false);
}

/* A slot that loses all parts leaves the index. If it was in the main queue, so is the next slot of
 * its block. */
Test(cache_index, slots_without_parts_leave)
{
	uint32_t s = put(2, false);

	for (int i = 0; i < 2; i++)
		cache_hit(&ix, s);
	for (uint64_t b = 3; !ix.lists[CACHE_MAIN].count; b++)
		read_in(b);
	check(ix.slots[s].list == CACHE_MAIN);
	cache_unlist(&ix, s);
	unused[nunused++] = s;
	check(!has(2));
	s = put(2, false);
	check(ix.slots[s].list == CACHE_MAIN);
}

/* A block may have a slot of each kind, and blocks of one bucket are told apart. */
Test(cache_index, finds_slots)
{
	for (uint64_t b = 0; b < SLOTS / 2; b++) {
		put(b << 40, false);
		put(b << 40, true);
	}
	for (uint64_t b = 0; b < SLOTS / 2; b++) {
		for (int dirty = 0; dirty < 2; dirty++) {
			uint32_t s = cache_find(&ix, b << 40, dirty);

			check(s != CACHE_NO_SLOT && ix.slots[s].key == (b << 41 | (uint64_t)dirty));
			check(cache_is_dirty(&ix, s) == dirty);
		}
	}
	check(!has(1) && ix.lists[CACHE_DIRTY].count == SLOTS / 2);
	check(ix.lists[CACHE_SMALL].count == SLOTS / 2);
}

/* The slot that became dirty first comes first. A slot that was written back is clean. */
Test(cache_index, dirty_slots_are_in_order)
{
	uint32_t a = put(1, true), b = put(2, true);

	check(ix.lists[CACHE_DIRTY].first == a && !evict(), "dirty slots are not evicted");
	cache_stay_dirty(&ix, a, 7);
	check(ix.lists[CACHE_DIRTY].first == b && ix.slots[a].since == 7);
	cache_make_clean(&ix, b);
	check(cache_find(&ix, 2, true) == CACHE_NO_SLOT && cache_find(&ix, 2, false) == b);
	check(!cache_is_dirty(&ix, b));
	check(ix.lists[CACHE_DIRTY].first == a && ix.lists[CACHE_DIRTY].count == 1);
	check(evict() && !has(2) && cache_find(&ix, 1, true) == a);
}

/* A scan that is larger than the cache evicts no block that was read twice. */
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
	check(count_listed() == SLOTS && ix.lists[CACHE_MAIN].count == SLOTS / 2);
}

/* In the small queue, the oldest block is evicted first. */
Test(cache_index, blocks_that_are_read_once_leave_in_order)
{
	for (uint64_t b = 0; b < SLOTS; b++)
		put(b, false);
	for (uint64_t b = 0; b < SLOTS; b++) {
		check(has(b) && evict() && !has(b), "block %ju", (uintmax_t)b);
		check(b + 1 == SLOTS || has(b + 1));
	}
	check(!evict(), "there is nothing left");
}

/* A block that returns soon after it has left enters the main queue; one that returns late does
 * not. */
Test(cache_index, ghosts_are_remembered_for_a_while)
{
	for (uint64_t b = 0; b < SLOTS + 10; b++)
		read_in(b);
	check(!has(0) && !has(9) && has(10));
	check(evict());
	check(ix.slots[put(9, false)].list == CACHE_MAIN, "it left as one of the last");
	check(evict());
	for (uint64_t b = 1000; b < 1000 + 3 * SLOTS; b++)
		read_in(b);
	check(!has(5) && evict());
	check(ix.slots[put(5, false)].list == CACHE_SMALL, "it left long ago");
}

/* A block is no ghost any more when as many others have left as there can be ghosts, also if none
 * of them has taken its place meanwhile. */
Test(cache_index, ghosts_grow_old)
{
	enum { TRIALS = 60 };
	unsigned kept[3] = { 0 };

	for (unsigned age = 0; age < 3; age++) {
		for (uint64_t t = 0; t < TRIALS; t++) {
			uint64_t block = t << 20, others;

			end();
			begin();
			others = age * (uint64_t)(ix.nghosts + 1) + 5;
			for (uint64_t b = block; b < block + SLOTS + 1 + others; b++)
				read_in(b);
			check(!has(block) && evict());
			kept[age] += ix.slots[put(block, false)].list == CACHE_MAIN;
		}
	}
	check(kept[0] == TRIALS && kept[1] == 0 && kept[2] == 0, "%u, %u and %u of %d", kept[0],
	      kept[1], kept[2], TRIALS);
}

/* A slot goes round the main queue once for each time that it was read. */
Test(cache_index, the_main_queue_goes_round)
{
	uint32_t s[3];

	for (uint64_t b = 0; b < 3; b++) {
		s[b] = put(b, false);
		cache_hit(&ix, s[b]);
		cache_hit(&ix, s[b]);
	}
	/* The first eviction moves them to the main queue. */
	put(100, false);
	check(evict() && !has(100) && ix.lists[CACHE_MAIN].count == 3);
	for (int i = 0; i < 10; i++)
		cache_hit(&ix, s[0]);
	check(ix.slots[s[0]].freq == CACHE_MAX_FREQ);
	check(evict() && has(0) && !has(1) && has(2));
	check(evict() && has(0) && !has(2));
	check(evict() && !has(0) && !evict());
}
