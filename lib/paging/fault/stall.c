/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounds the memory of changes that storage does not take (ENOSPC, EDQUOT, EFBIG, EIO). While the
 * writes of a mapping fail, its dirty segments stay in memory, beyond the budget if necessary. When
 * the excess has reached its bound, a store that would make another segment dirty waits until
 * writes have made room, or raises SIGBUS. A load never waits: the next load can evict its
 * segment. A thread waits without a use of the mapping and without the lock of a segment, so syncs
 * and umunmap go on. The fault path only reads and sets marks; the background thread writes the
 * messages. Takes no lock of its own.
 */
#include "paging/fault/stall.h"

#include "base/config.h"
#include "base/log.h"
#include "budget/budget.h"
#include "paging/residency/evict.h"
#include "paging/mapping/lookup.h"
#include "paging/sync/commit.h"
#include "paging/sync/sync.h"
#include "paging/sync/writeback.h"

#include <string.h>

static _Atomic bool has_waiting;   /* stall.waiting of some mapping is set */
static _Atomic uint32_t sleeping;  /* never changes: stall_sleep only waits for its timeout */

bool stall_is_full(const struct mapping *map)
{
	/* An ordered migration is written by a sync only: no background write could end the
	 * wait. */
	return !map_in_order(map) &&
	       account_must_stall(map_account(map), map_hold(map), map->member.least);
}

void stall_note_failure(struct mapping *map, int err)
{
	map->fault.stall.unreported = -err;
}

void stall_note_wait(struct mapping *map)
{
	map->fault.stall.waiting = true;
	has_waiting = true;
}

void stall_sleep(void)
{
	futex_wait(&sleeping, 0, STALL_SLEEP_MS);
}

/* ---- The background thread ---- */

static void wake_waiting(struct mapping *map)
{
	map->fault.stall.waiting = false;
	engine_wake(map->engine, map->range, map->size);
}

static const char *remedy(int error)
{
	if (stall_lacks_space(error))
		return "Try to make space there, or raise the limit or quota that is reached";
	if (error == EFBIG)
		return "Try a larger RLIMIT_FSIZE (ulimit -f), or another file system";
	return "Try to repair the storage";
}

static bool is_due(uint64_t *last)
{
	uint64_t now = sys_now();

	if (*last && now - *last < STALL_REPORT_INTERVAL_MS)
		return false;
	*last = now;
	return true;
}

static void report(struct mapping *map, bool waiting)
{
	int failure = atomic_exchange(&map->fault.stall.unreported, 0);
	int error = writeback_error(map);
	size_t dirty = cache_count_bytes(&map->member).dirty;

	if (waiting && error && is_due(&map->fault.stall.wait_reported)) {
		log_line(LOG_WARN, "stall",
			 "cannot store more to '%s': its writes fail (%s), and %zu bytes of "
			 "changes are in memory, the maximum (UMMAP_OVER_BUDGET). The storing "
			 "thread waits until writes make room. %s", map->name, strerror(error),
			 dirty, remedy(error));
		map->fault.stall.failure_reported = map->fault.stall.wait_reported;
	} else if (failure && is_due(&map->fault.stall.failure_reported)) {
		log_line(LOG_WARN, "stall",
			 "cannot write to '%s': %s. %zu bytes of changes stay in memory, and the "
			 "write is tried again every second. %s", map->name, strerror(failure),
			 dirty, remedy(failure));
	} else if (!failure && !error && map->fault.stall.failure_reported) {
		map->fault.stall.failure_reported = map->fault.stall.wait_reported = 0;
		log_line(LOG_INFO, "stall", "writes to '%s' succeed again", map->name);
	}
}

/* Storage may accept some segments, for example those whose blocks are allocated, and refuse
 * others. All dirty segments may be resident, so that no eviction writes them. Therefore all are
 * tried, until none can be written. */
static void try_write(struct mapping *map)
{
	uint64_t begin = sys_now();
	size_t before = cache_count_bytes(&map->member).dirty;

	if (begin < map->fault.stall.next_try || commit_runs(map))
		return;
	writeback_some(map, &map->fault.stall.at, map->segs, begin + STALL_WRITE_MS);
	map->fault.stall.progress |= cache_count_bytes(&map->member).dirty < before;
	if (map->fault.stall.at < map->segs)
		return;
	map->fault.stall.next_try = map->fault.stall.progress ? 0 : sys_now() + STALL_RETRY_MS;
	map->fault.stall.at = 0;
	map->fault.stall.progress = false;
}

static bool must_still_wait(const struct mapping *map)
{
	return writeback_error(map) && stall_is_full(map);
}

/* Returns whether threads still wait for the mapping. */
static bool release_mapping(struct mapping *map)
{
	if (!map->fault.stall.waiting)
		return false;
	if (must_still_wait(map)) {
		report(map, true);
		try_write(map);
	}
	if (must_still_wait(map))
		return true;
	wake_waiting(map);
	return false;
}

bool stall_release(void)
{
	struct mapping *map;

	if (!atomic_exchange(&has_waiting, false))
		return false;
	for (size_t n = 0; (map = map_nth(n)); n++) {
		if (release_mapping(map))
			has_waiting = true;
		map_leave(map);
	}
	return has_waiting;
}

void stall_check(struct mapping *map)
{
	report(map, map->fault.stall.waiting);
	/* Another thread may have made the segment dirty for which a thread waits: it need not
	 * wait any longer. */
	if (map->fault.stall.waiting)
		wake_waiting(map);
}

/* ---- The end ---- */

void stall_report_lost(void)
{
	struct mapping *map;

	for (size_t n = 0; (map = map_nth(n)); n++) {
		size_t kept = writeback_error(map) ? cache_count_bytes(&map->member).dirty : 0;
		size_t gone = flush_lost(map);
		int error = kept ? writeback_error(map) : flush_error(map);

		if (kept + gone)
			log_line(LOG_ERROR, "stall",
				 "cannot write %zu bytes of changes to '%s' at exit; they are "
				 "lost: %s. %s before the program runs again", kept + gone,
				 map->name, strerror(error), remedy(error));
		map_leave(map);
	}
}
