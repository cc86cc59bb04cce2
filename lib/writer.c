/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Once a second: writes what has been changed for longer than its mapping's flush interval and makes it
 * durable, cleans dirty standby segments that no job took, lets places be tried again where loads have failed, and
 * sees to the handler. Errors stay with the mapping. Holds nothing between mappings.
 */
#include "writer.h"

#include "chain.h"
#include "inplace.h"
#include "log.h"
#include "map.h"
#include "refuse.h"
#include "writeback.h"

#include <pthread.h>
#include <string.h>

#define PERIOD_MS 1000
/* Requests for one mapping in one round, so that all get their turn. */
#define STRAGGLERS 64

static void keep_error(struct set *set, int err)
{
	int none = 0;

	if (!err)
		return;
	if (atomic_compare_exchange_strong(&set->error, &none, err))
		log_line(LOG_WARN, "writer", "a write in the background failed: %s; the data stays in memory",
			 strerror(-err));
}

/* Segments that were changed at least an interval ago. */
static void flush_old(struct map *map)
{
	struct set *set = &map->set;
	uint64_t interval = (uint64_t)map->flush_interval * 1000, now = sys_now();
	int err;

	if (map->flush_interval < 0 || now < interval)
		return;
	if (set->in_place) {
		keep_error(set, inplace_sync_old(set, interval));
		return;
	}
	err = writeback_range(set, 0, set->segs, now - interval + 1);
	if (!err)
		err = writeback_flush(set);
	keep_error(set, err);
}

static void *run(void *unused)
{
	_Atomic uint32_t never = 0;
	struct map *map;

	(void)unused;
	for (;;) {
		sys_wait(&never, 0, PERIOD_MS);
		chain_keep();
		for (size_t n = 0; (map = map_get_nth(n)); n++) {
			for (int i = 0; i < STRAGGLERS && writeback_standby(&map->set); i++)
				;
			flush_old(map);
			refuse_forgive(&map->set);
			set_put(&map->set);
		}
	}
	return NULL;
}

int writer_start(void)
{
	struct guard g;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	guard_enter(&g);
	err = pthread_create(&thread, &attr, run, NULL);
	guard_leave(&g);
	pthread_attr_destroy(&attr);
	return err ? fail(err, "the background thread cannot be started: %s", strerror(err)) : 0;
}
