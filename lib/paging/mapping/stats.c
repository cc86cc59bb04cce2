/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adds up the counters of existing and ended mappings, prints them, and publishes them in the
 * registry. `lock` is a leaf lock for the sums of ended mappings.
 */
#include "paging/mapping/stats.h"

#include "budget/budget.h"
#include "base/log.h"
#include "engine/engine.h"
#include "paging/mapping/lookup.h"
#include "paging/mapping/shared_copy.h"
#include "paging/residency/neighbors.h"
#include "paging/residency/pagecache.h"
#include "paging/residency/tiering.h"
#include "paging/sync/commit.h"
#include "paging/sync/sync.h"
#include "paging/sync/writeback.h"
#include "memory/tiers.h"
#include "node/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct umstat ended;   /* counters of mappings that have ended */
static _Atomic uint32_t lock;

#define FIELD(name) { #name, offsetof(struct umstat, name) }
#define TIER_FIELD(name, i) { "tier" #i "_" #name, offsetof(struct umstat, tier_##name[i]) }
#define TIER(i) TIER_FIELD(bytes, i), TIER_FIELD(loads, i), TIER_FIELD(promotions, i), \
		TIER_FIELD(demotions, i), TIER_FIELD(hits, i)
#define TIER_FIELDS 5 /* fields of a tier, at the end of the table */

static const struct {
	const char *name;
	size_t offset;
} fields[] = {
	FIELD(read_faults), FIELD(write_faults), FIELD(upgrade_faults), FIELD(spurious_faults),
	FIELD(inactive_hits), FIELD(readahead_hits), FIELD(readahead_waste),
	FIELD(readahead_loads), FIELD(evictions), FIELD(read_bytes), FIELD(read_requests),
	FIELD(write_bytes), FIELD(write_requests), FIELD(flushes),
	FIELD(read_errors), FIELD(write_errors), FIELD(resident_bytes), FIELD(inactive_bytes),
	FIELD(dirty_bytes), FIELD(pinned_bytes), FIELD(budget_bytes), FIELD(held_bytes),
	FIELD(over_budget_peak), FIELD(mappings), FIELD(pagecache_bytes), FIELD(lost_bytes),
	FIELD(waiting_bytes), FIELD(commit_bytes),
	TIER(0), TIER(1), TIER(2), TIER(3),
};

void stats_print(const char *where, const struct umstat *st)
{
	bool text = strcmp(where, "1") == 0;
	size_t n = sizeof(fields) / sizeof(*fields) - TIER_FIELDS * (UMMAP_MAX_TIERS - tier_count);
	FILE *f = text ? stderr : fopen(where, "we");

	if (!f) {
		log_line(LOG_ERROR, "stats", "cannot write the counters to '%s' (UMMAP_STATS): %s",
			 where, strerror(errno));
		return;
	}
	if (!text)
		fprintf(f, "{\n");
	for (size_t i = 0; i < n; i++) {
		uint64_t value;

		memcpy(&value, (const char *)st + fields[i].offset, sizeof(value));
		if (text)
			fprintf(f, "ummap: %-16s %" PRIu64 "\n", fields[i].name, value);
		else
			fprintf(f, "  \"%s\": %" PRIu64 "%s\n", fields[i].name, value,
				i + 1 < n ? "," : "");
	}
	if (!text) {
		fprintf(f, "}\n");
		fclose(f);
	}
}

/* Adds the counters of one mapping. */
static void add_counters(const struct mapping *map, struct umstat *st)
{
	const struct map_stat *s = &map->stat;
	struct cache_bytes b = cache_count_bytes(&map->member);

	st->read_faults += s->read_faults;
	st->write_faults += s->write_faults;
	st->upgrade_faults += s->upgrade_faults;
	st->spurious_faults += s->spurious_faults;
	st->inactive_hits += s->inactive_hits;
	st->readahead_hits += s->readahead_hits;
	st->readahead_waste += s->readahead_waste;
	st->readahead_loads += s->readahead_loads;
	st->evictions += s->evictions;
	st->read_bytes += s->io.read_bytes;
	st->read_requests += s->io.read_requests;
	st->write_bytes += s->io.write_bytes;
	st->write_requests += s->io.write_requests;
	st->flushes += s->io.flushes;
	st->read_errors += s->io.read_errors;
	st->write_errors += s->io.write_errors;
	st->resident_bytes += map->copy ? copy_part(map) : b.resident;
	st->inactive_bytes += b.inactive;
	st->dirty_bytes += b.dirty;
	st->waiting_bytes += writeback_error(map) ? b.dirty : 0;
	st->pinned_bytes += map->life.pinned;
	st->pagecache_bytes += pagecache_bytes(map);
	st->lost_bytes += flush_lost(map);
	st->commit_bytes += commit_bytes(map);
}

void stats_map(const struct mapping *map, struct umstat *st)
{
	size_t budget = map->member.group->budget;

	add_counters(map, st);
	st->budget_bytes = budget ? budget : budget_bytes();
	st->engine = map->in_place && !map->copy ? 0 : map->engine->number;
	st->kernel = (map->in_place && !map->copy) || engine_sees_kernel(map->engine);
	if (map->copy)
		copy_count(map, &st->resident_bytes, &st->budget_bytes);
	st->transfer_bytes = map->in_place ? 0 : neighbors_transfer_bytes(map);
}

void stats_ending(const struct mapping *map)
{
	futex_lock(&lock);
	add_counters(map, &ended);
	ended.resident_bytes = ended.inactive_bytes = ended.dirty_bytes = ended.pinned_bytes = 0;
	ended.pagecache_bytes = 0;
	ended.waiting_bytes = ended.commit_bytes = 0;
	futex_unlock(&lock);
}

/* Gets the counters of ended mappings, and those that belong to no mapping. */
static void begin_sum(struct umstat *st)
{
	futex_lock(&lock);
	*st = ended;
	futex_unlock(&lock);
	st->budget_bytes = budget_bytes();
	st->held_bytes = frame_held() + budget_copies();
	st->over_budget_peak = budget_peak_excess();
	tiering_count(st);
}

void stats_process(struct umstat *st)
{
	struct mapping *map;

	begin_sum(st);
	for (size_t n = 0; (map = map_nth(n)); n++) {
		add_counters(map, st);
		map_leave(map);
		st->mappings++;
	}
}

void stats_forget(void)
{
	lock = 0;
	memset(&ended, 0, sizeof(ended));
}

static void fill_row(const struct mapping *map, struct registry_map *row)
{
	struct umstat st = { 0 };

	memset(row, 0, sizeof(*row));
	row->base = (uintptr_t)map->range;
	row->size = map->size;
	row->seg_size = map->seg_size;
	memcpy(row->name, map->name, sizeof(row->name));
	stats_map(map, &st);
	if (map->copy) {
		row->sharers = copy_sharers(map);
		st.resident_bytes = copy_part(map);
	}
	memcpy(row->st, &st, sizeof(row->st));
}

void stats_publish(void)
{
	struct registry_page *page = node_page();
	struct umstat st;
	struct mapping *map;
	uint32_t n = 0;

	if (!page)
		return;
	atomic_store(&page->sequence, page->sequence | 1);
	begin_sum(&st);
	for (; (map = map_nth(n)); n++) {
		if (n < REGISTRY_MAPS)
			fill_row(map, &page->map[n]);
		add_counters(map, &st);
		map_leave(map);
	}
	st.mappings = n;
	page->st = st;
	page->count = n;
	page->updated = sys_now();
	atomic_store(&page->sequence, page->sequence + 1);
}
