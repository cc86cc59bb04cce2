/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changes a mapping to another URI of the same file. Two handles with different filters must not be
 * used side by side: the older one may hold contents that the newer one does not see, and may write
 * them to the file later. So the mapping is synced, the older handle is handed over
 * (ummap-driver.h: hand_over), and the newer one is opened and replaces it at once. Locks are never
 * given up in between: drivers keep them for both handles.
 *
 * If both handles show the same bytes, as with all filters except cow+, segments stay as they are.
 * Otherwise the contents are copied from store to store, where they differ.
 */
#include "paging/mapping/replace.h"

#include "common/memory_calls.h"
#include "base/log.h"
#include "paging/mapping/inplace.h"
#include "paging/mapping/lock.h"
#include "paging/residency/pagecache.h"
#include "paging/fault/segment.h"
#include "paging/sync/sync.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct store *replace_find(const struct mapping *map, const struct identity *id)
{
	for (unsigned i = 0; i < SEG_BACKINGS; i++) {
		if (map->backings[i].store && io_is(map->backings[i].store, id))
			return map->backings[i].store;
	}
	return NULL;
}

static bool backing_meets(const struct mapping *map, unsigned i, const struct identity *id)
{
	return map->backings[i].store && io_meets(map->backings[i].store, id);
}

bool replace_is_needed(const struct mapping *map, const struct identity *id)
{
	bool any = false;

	for (unsigned i = 0; i < SEG_BACKINGS; i++)
		any = any || backing_meets(map, i, id);
	return any;
}

/* ---- Handing over ---- */

static void cancel_hand_over(struct mapping *map, const struct identity *id, unsigned n)
{
	while (n-- > 0) {
		if (backing_meets(map, n, id))
			io_cancel_hand_over(map->backings[n].store);
	}
}

static int hand_over(struct mapping *map, const struct replacement *r, int how)
{
	unsigned i;
	int err = 0;

	for (i = 0; i < SEG_BACKINGS && !err; i++) {
		if (backing_meets(map, i, r->id))
			err = io_hand_over(map->backings[i].store, how, r->uri, r->fd, NULL);
	}
	if (err)
		cancel_hand_over(map, r->id, i - 1);
	return err;
}

int replace_begin_switch(struct mapping *map, const struct replacement *r)
{
	int err;

	seg_hide(map);
	/* Jobs that found a segment earlier may still be writing it. */
	map_quiesce(map);
	err = hand_over(map, r, UMMAP_HANDOVER_SWITCH);
	if (err)
		seg_show(map);
	return err;
}

void replace_end(struct mapping *map, const struct identity *id, bool failed)
{
	if (failed)
		cancel_hand_over(map, id, SEG_BACKINGS);
	seg_show(map);
}

/* ---- Contents ---- */

static int transfer_bytes(struct mapping *map, struct store *store, uint8_t op, void *buf,
			  size_t len, uint64_t off)
{
	struct ummap_io io = { .op = op, .buf = buf, .len = len, .off = off };

	return io_run(store, &io, 1, false, &map->stat.io);
}

/* Copies segment i to the other store, if its contents there differ. The older store must have the
 * newest contents of the segment. */
static int copy_segment(struct mapping *map, struct store *to, uint64_t offset, size_t i, char *buf)
{
	const struct backing *from = &map->backings[map->current];
	size_t at = i << map->shift, len = map_len(map, i);
	char *there = buf + map->seg_size;
	int err = 0;

	if (map_reads(map, map_seg(map, i)))
		err = transfer_bytes(map, from->store, UMMAP_IO_READ, buf, len, from->offset + at);
	else
		memset(buf, 0, len);
	if (!err)
		err = transfer_bytes(map, to, UMMAP_IO_READ, there, len, offset + at);
	if (!err && memcmp(buf, there, len) != 0)
		err = transfer_bytes(map, to, UMMAP_IO_WRITE, buf, len, offset + at);
	return err;
}

static int copy_contents(struct mapping *map, struct store *to, uint64_t offset)
{
	size_t size = 2 * map->seg_size;
	char *buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool kept;
	int err = 0;

	if (buf == MAP_FAILED)
		return fail(ENOMEM, "cannot copy the contents to the new store: no memory for a "
			    "buffer of %zu bytes. Try smaller segments", size);
	for (size_t i = 0; i < map->segs && !err; i++)
		err = copy_segment(map, to, offset, i, buf);
	raw_munmap(buf, size);
	if (!err)
		err = io_lengthen(to, offset + map->life.stored);
	if (!err)
		err = io_flush(to, &kept, &map->stat.io);
	err = abs(err);
	return err ? fail(err, "cannot copy the contents to the new store: %s", strerror(err)) : 0;
}

/* ---- Keeping the contents ---- */

int replace_open(const struct replacement *r, struct store **store)
{
	if (r->fd >= 0)
		return io_open_fd(r->uri, r->fd, r->oflags, store);
	return io_open(r->uri, r->oflags, store);
}

static int take_lock(struct mapping *map, struct backing *to, uint64_t offset)
{
	lock_drop(to->lock);
	to->lock = NULL;
	to->offset = offset;
	if (!map->writable)
		return 0;
	return lock_take(map, to->store, offset, map->size, map->writers, &to->lock);
}

/* Makes the other store show the contents of the mapping. */
static int migrate_contents(struct mapping *map, const struct replacement *r, struct backing *to)
{
	int err = io_hand_over(map->backings[map->current].store, UMMAP_HANDOVER_FINISH, r->uri,
			       r->fd, to->store);

	if (err)
		return err < 0 ? err : 0;
	/* A copy within one file could overwrite what it is going to read. */
	if (r->id->file[1] && io_geom(to->store)->id[0] == r->id->file[1])
		return fail(EINVAL, "cannot migrate the contents: both stores have their bytes in "
			    "one file, at different places. Try another file, or UMMAP_SWITCH");
	err = take_lock(map, to, r->offset);
	return err ? err : copy_contents(map, to->store, r->offset);
}

/* Locks the range of the other store, and gives it the contents if it does not show them. The
 * mapping's store was handed over, and the other store is open. */
static int prepare_backing(struct mapping *map, const struct replacement *r, struct backing *to)
{
	const struct backing *now = &map->backings[map->current];
	int err;

	to->read = now->read;
	err = take_lock(map, to, now->offset);
	if (!err && !io_same(now->store, to->store))
		err = migrate_contents(map, r, to);
	if (err) {
		lock_drop(to->lock);
		to->lock = NULL;
	}
	return err;
}

static void install_backing(struct mapping *map, const struct backing *to)
{
	struct backing before = map->backings[map->current];

	map->backings[map->current] = *to;
	map->life.stored = max_size(map->life.stored,
				    map_stored_in(to->store, to->offset, map->size));
	/* The older store has made all contents durable: its failed flushes do not matter any
	 * more. */
	flush_forget(map, false);
	lock_drop(before.lock);
	io_close(before.store);
}

static int replace_store(struct mapping *map, const struct replacement *r)
{
	struct backing to = { .store = NULL };
	int err = hand_over(map, r, UMMAP_HANDOVER_KEEP);

	if (err)
		return err;
	err = replace_open(r, &to.store);
	if (!err) {
		err = prepare_backing(map, r, &to);
		if (err)
			io_close(to.store);
	}
	if (err)
		cancel_hand_over(map, r->id, SEG_BACKINGS);
	else
		install_backing(map, &to);
	return err;
}

int replace_keep(struct mapping *map, const struct replacement *r)
{
	bool in_place = map->in_place;
	int err = sync_all(map), left = 0;

	if (!err && in_place)
		err = left = inplace_leave(map);
	if (!err)
		err = pagecache_unmap(map, 0, map->segs);
	/* The sync may have closed the only store that had to be handed over. */
	if (!err && replace_is_needed(map, r->id)) {
		seg_hide(map);
		map_quiesce(map);
		err = replace_store(map, r);
		seg_show(map);
	}
	if (in_place && !left && !map->in_place)
		remap_in_place(map);
	return err;
}
