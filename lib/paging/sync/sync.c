/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sync of a mapping: it migrates segments of the older backing store, writes all changes, and
 * makes them durable by a flush. `sync.lock` is held during an ordered migration, and while the
 * older store is closed.
 */
#include "paging/sync/sync.h"

#include "base/log.h"
#include "paging/sync/commit.h"
#include "paging/sync/flush.h"
#include "paging/mapping/inplace.h"
#include "paging/mapping/lock.h"
#include "paging/fault/segment.h"
#include "paging/sync/writeback.h"

#include <string.h>

void sync_close_older(struct mapping *map)
{
	for (unsigned i = 0; i < SEG_BACKINGS; i++) {
		struct store *store = map->backings[i].store;

		if (i == map->current || !store)
			continue;
		/* The store is removed first: a child that is forked now would close it again. */
		map->backings[i].store = NULL;
		lock_drop(map->backings[i].lock);
		map->backings[i].lock = NULL;
		io_close(store);
	}
	map_set_migration(map, MIGRATE_NONE);
}

void sync_explain(const struct mapping *map, int err)
{
	const struct flushing *f = &map->sync.flush;

	if (*fail_message())
		return;
	if (flush_has_lost(map) && map->writers) {
		fail(EIO, "cannot make changes to '%s' durable: %s. The store may have lost "
		     "written data, and the library no longer knows which bytes (UMMAP_WRITERS). "
		     "Try to take the contents from a copy or to compute them again, and end this "
		     "mapping without a sync", map->name, strerror(f->error));
		return;
	}
	if (flush_has_lost(map)) {
		fail(EIO, "cannot make %llu bytes of changes to '%s' durable: %s. The store may "
		     "have lost them, and they have left memory, so they cannot be written again. "
		     "All other changes are written. Try to take the contents from a copy or to "
		     "compute them again, and end this mapping without a sync",
		     (unsigned long long)min_size(f->lost, map->size), map->name,
		     strerror(f->error));
		return;
	}
	fail(-err, "cannot make changes to '%s' durable: %s. They are kept in memory. Try %s",
	     map->name, strerror(-err),
	     err == -ENOSPC || err == -EDQUOT ?
	     "to free space on the disk, or a larger limit in the URI, and sync again" :
	     err == -EFBIG ?
	     "a larger RLIMIT_FSIZE (ulimit -f), or another file system, and sync again" :
	     "to sync again");
}

static int complete_in_order(struct mapping *map)
{
	int err = 0;

	futex_lock(&map->sync.lock);
	if (map_in_order(map))
		err = seg_migrate(map, 0, map->segs, map->migration == MIGRATE_DESCENDING);
	if (!err && map_in_order(map))
		map_set_migration(map, MIGRATE_ANY);
	futex_unlock(&map->sync.lock);
	return err;
}

int sync_migrate(struct mapping *map, size_t first, size_t last)
{
	if (map_in_order(map))
		return complete_in_order(map);
	return seg_migrate(map, first, last, false);
}

int sync_segments(struct mapping *map)
{
	int err = map->migration ? sync_migrate(map, 0, map->segs) : 0;

	futex_lock(&map->sync.lock);
	if (!err)
		err = writeback_sync(map, 0, map->segs);
	if (!err && map->migration)
		sync_close_older(map);
	futex_unlock(&map->sync.lock);
	return err;
}

bool sync_some(struct mapping *map, size_t *at, size_t last)
{
	uint64_t until = sys_now() + SYNC_PART_MS;
	int err = 0;

	if (commit_await_for(map, SYNC_PART_MS))
		return true;
	if (map->in_place || map_in_order(map))
		return false;
	last = min_size(last, map->segs);
	do {
		size_t end = map->migration ? min_size(*at + writeback_run(map), last) : last;

		if (map->migration && *at < end)
			err = seg_migrate(map, *at, end, false);
		if (!err)
			err = writeback_some(map, at, end, until);
	} while (!err && *at < last && sys_now() < until);
	if (err)
		writeback_keep_error(map, err);
	return !err && *at < last;
}

int sync_all(struct mapping *map)
{
	int err, earlier;

	commit_await(map);
	err = map->in_place ? inplace_sync(map, 0, map->size) : sync_segments(map);
	earlier = writeback_take_error(map);
	if (!err && earlier && !map->in_place)
		return fail(-earlier, "a transfer of '%s' failed before its repetition succeeded: "
			    "%s. All changes are durable now. Try another sync to see whether the "
			    "storage works", map->name, strerror(-earlier));
	err = err ? err : earlier;
	if (err)
		sync_explain(map, err);
	return err;
}

int sync_write(struct mapping *map)
{
	int err;

	commit_await(map);
	/* The older store of a migration is closed, so the current one has to be durable. */
	if (map->in_place || map->migration)
		return map->in_place ? 0 : sync_all(map);
	err = writeback_range(map, 0, map->segs, UINT64_MAX);
	if (err)
		sync_explain(map, err);
	return err;
}
