/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The background thread. Once a second it writes segments that have been dirty for longer than
 * their mapping's flush interval and makes them durable, writes dirty inactive segments that no
 * job has written, allows failed loads to be tried again, checks the signal handler and page-cache
 * mappings, assembles huge pages, returns idle memory to the system, and publishes the counters.
 * When the budget has shrunk, it evicts what exceeds it. It adjusts the budgets of node copies.
 * Errors are kept with the mapping. The thread holds no lock between two mappings.
 */
#include "paging/sync/flusher.h"

#include "budget/budget.h"
#include "engine/sigsegv.h"
#include "paging/residency/assemble.h"
#include "paging/residency/evict.h"
#include "paging/sync/commit.h"
#include "paging/mapping/inplace.h"
#include "paging/residency/pagecache.h"
#include "paging/residency/tiering.h"
#include "base/scratch.h"
#include "base/log.h"
#include "paging/mapping/lookup.h"
#include "paging/mapping/shared_copy.h"
#include "budget/share.h"
#include "node/node.h"
#include "paging/fault/fault.h"
#include "base/spare.h"
#include "paging/fault/stall.h"
#include "paging/mapping/stats.h"
#include "paging/sync/sync.h"
#include "paging/sync/writeback.h"

#include <string.h>

static void keep_error(struct mapping *map, int err)
{
	bool first = err && writeback_keep_error(map, err);

	if (err && !map->in_place && !flush_has_lost(map))
		stall_note_failure(map, err);
	else if (first)
		log_line(LOG_WARN, "flusher", "cannot make changes to '%s' durable: %s. %s",
			 map->name, strerror(-err), flush_has_lost(map) ?
			 "The next sync says what is lost" :
			 "Try to repair the storage, and sync again");
}

/* Writes the segments that were changed at least an interval ago. */
static void flush_old(struct mapping *map)
{
	uint64_t interval = (uint64_t)map->flush_interval * 1000, now = sys_now();
	int err;

	if (map->flush_interval == 0 || now < interval || commit_runs(map))
		return;
	if (map->in_place) {
		keep_error(map, inplace_sync_old(map, interval));
		return;
	}
	err = map_in_order(map) ? sync_migrate(map, 0, map->segs) : 0;
	if (!err)
		err = writeback_range(map, 0, map->segs, now - interval + 1);
	/* A thread that wants to be the only user is not delayed. */
	if (!err && !map_is_frozen(map))
		err = flush_background(map);
	keep_error(map, err);
}

/* Frees the memory that locking gave to the frame of a resident segment in the pool. The frame of a
 * short segment keeps it, because the pool has a part of its contents. */
static int drop_pool_memory(struct mapping *map, size_t i, struct seg *s)
{
	if (!seg_has(s, SEG_INACTIVE) && map_slot_len(map, i) == map->seg_size)
		frame_drop_memory(s->frame);
	return 0;
}

/* The program has locked all of its memory, also that of the library, which could not be freed
 * then. */
static void unlock_memory(void)
{
	struct mapping *map;

	for (size_t n = 0; (map = map_nth(n)); n++) {
		if (!map->in_place) {
			sys_unlock(map->range, round_up(map->size, sys_page()));
			map_for_valid(map, 0, map->segs, drop_pool_memory);
		}
		map_leave(map);
	}
	frame_unlock();
	scratch_unlock();
}

/* Restores the spare kernel mappings, and warns once if they were needed: faults are slow then. */
static void check_spare_mappings(void)
{
	static bool reported;

	spare_refill();
	if (!spare_was_needed() || reported)
		return;
	reported = true;
	log_line(LOG_WARN, "flusher", "the process has reached the limit on its kernel mappings or "
		 "on its address space, so few segments are in memory, and accesses are slow. Try "
		 "larger limits, vm.max_map_count (sysctl(8)) or RLIMIT_AS (ulimit -v); or larger "
		 "segments, or another engine: ummap-engines(7)");
}

static void make_round(void)
{
	static unsigned rounds;
	struct mapping *map;

	sigsegv_keep();
	sigsegv_read_others();
	check_spare_mappings();
	if (sys_check_memory_locks())
		unlock_memory();
	for (size_t n = 0; (map = map_nth(n)); n++) {
		for (int i = 0; i < MAX_WRITES_PER_ROUND &&
				writeback_inactive(map_account(map), map); i++)
			;
		flush_old(map);
		stall_check(map);
		fault_unpoison(map, false);
		pagecache_check(map);
		assemble_if_idle(map);
		map_leave(map);
	}
	tiering_sample();
	while (share_is_dynamic() && frame_shrink(NULL, 0))
		;
	if (++rounds % FRAME_AGE_ROUNDS == 0)
		frame_age();
	stats_publish();
}

/* Returns the largest number of bytes that a mapping needs at least. */
static size_t largest_least(void)
{
	size_t least = 0;
	struct mapping *map;

	for (size_t n = 0; (map = map_nth(n)); n++) {
		least = max_size(least, map->member.least);
		map_leave(map);
	}
	return least;
}

/* Frees a part of the memory in excess of the budget. Returns after how many ms to continue. */
static int shrink_to_budget(int idle)
{
	size_t before, least;
	struct mapping *map;

	if (budget_has_total_room(0))
		return idle;
	pagecache_shrink();
	least = largest_least();
	before = budget_excess(least);
	while (budget_excess(least) && frame_shrink(NULL, 0))
		;
	for (size_t n = 0; (map = map_nth(n)); n++) {
		evict_shrink(map, least, SHRINK_STEPS);
		map_leave(map);
	}
	if (!budget_excess(least))
		return idle;
	return budget_excess(least) < before ? 0 : min_size(idle, BLOCKED_RETRY_MS);
}

static void *run(void *unused)
{
	uint64_t next_round = 0, now;

	(void)unused;
	node_attend();
	for (;;) {
		int wait;

		copy_count_parts();
		wait = (int)share_adjust();
		wait = shrink_to_budget((int)min_size((size_t)wait, copy_adjust()));

		if (stall_release())
			wait = min_size(wait, BLOCKED_RETRY_MS);
		now = sys_now();
		if (now >= next_round) {
			make_round();
			next_round = now + ROUND_PERIOD_MS;
		}
		share_wait(min_size(wait, next_round - now));
	}
	return NULL;
}

int flusher_start(void)
{
	int err = sys_start_thread(run, NULL);

	return err ? fail(-err, "cannot start the background thread: %s" SYS_THREAD_LIMITS,
			  strerror(-err)) : 0;
}
