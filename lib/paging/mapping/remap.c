/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umremap. A migration only changes which store is written: each header has the number of the
 * backing store that holds the segment, and segments of the older store count as dirty. There is
 * never a third store: an earlier migration is completed first. If the old and the new range
 * overlap, the contents move at once. The mapping has no other user during the change.
 */
#include "paging/mapping/remap.h"

#include "paging/mapping/teardown.h"
#include "engine/engine.h"
#include "paging/mapping/inplace.h"
#include "paging/residency/neighbors.h"
#include "paging/residency/pagecache.h"
#include "paging/mapping/lock.h"
#include "base/log.h"
#include "paging/fault/segment.h"
#include "paging/sync/sync.h"
#include "paging/sync/writeback.h"

#include <string.h>

/* ---- Size: steps that can fail come first and can be undone; later steps cannot fail ---- */

/* The growth of a mapping. */
struct growth {
	char *range;            /* new mapped range */
	size_t old;             /* old size in bytes */
	size_t old_segs;        /* old number of segments */
};

static void undo_growth(struct mapping *map, const struct growth *g, size_t size)
{
	size_t end = round_up(g->old, sys_page());

	map_resize(map, g->old);
	if (g->range == map->range)
		engine_detach(map->engine, map->range + end, round_up(size, sys_page()) - end);
	else
		engine_detach(map->engine, g->range, size);
}

/* Maps a range of `size` bytes: at the same address if possible. */
static int reserve_range(struct mapping *map, size_t size, char **range)
{
	char *end = map->range + round_up(map->size, sys_page());
	size_t more = (size_t)(map->range + round_up(size, sys_page()) - end);

	*range = map->range;
	/* A slot of another mapping may be empty for a moment, while a frame leaves it. */
	if (!(more && map_meets(end, more)) &&
	    engine_extend(map->engine, map->range, map->size, size - map->size, map->writable))
		return 0;
	return engine_attach(map->engine, size, map->seg_size, 0, 0, map->writable, range);
}

/* Whether the last segment will be read from the store, with its new length. */
static bool is_as_stored(const struct mapping *map, const struct remap *want)
{
	const struct seg *s = map_seg(map, map->segs - 1);

	return !want->moved && !seg_has(s, SEG_VALID) && seg_backing(s) == map->current &&
	       map->backings[map->current].read;
}

/* A short last segment gains bytes of the new backing store. They are read into its frame in the
 * pool. */
static int prepare_growth(struct mapping *map, const struct remap *want, struct growth *g)
{
	size_t last = map->segs - 1;
	int err;

	g->old = map->size;
	g->old_segs = map->segs;
	err = reserve_range(map, want->size, &g->range);
	if (err)
		return err;
	err = seg_unmap_all(map, g->range == map->range ? last : 0, map->segs);
	if (err)
		fail(-err, "cannot grow the mapping of '%s': %s", map->name, strerror(-err));
	if (!err && !want->switch_over && !is_as_stored(map, want)) {
		err = seg_lengthen(map, min_size(want->size, map->segs << map->shift), want->store,
				   want->offset);
		if (err)
			fail(-err, "cannot grow the mapping of '%s': its new end cannot be read: "
			     "%s", map->name, strerror(-err));
	}
	if (!err)
		err = map_resize(map, want->size);
	if (err)
		undo_growth(map, g, want->size);
	return err;
}

static void finish_growth(struct mapping *map, const struct growth *g)
{
	const struct backing *t = &map->backings[map->current];

	if (g->range != map->range)
		engine_detach(map->engine, map->range, g->old);
	map->range = g->range;
	for (size_t i = g->old_segs; map->current && i < map->segs; i++)
		seg_set_backing(map_seg(map, i), map->current);
	map->life.stored = max_size(map->life.stored,
				    map_stored_in(t->store, t->offset, map->size));
	neighbors_grow(map);
	map_move(map);
}

static void shrink_mapping(struct mapping *map, size_t size)
{
	size_t keep = ((size - 1) >> map->shift) + 1;
	size_t from = round_up(size, sys_page()), end = round_up(map->size, sys_page());

	teardown(map, keep);
	map_reset(map, keep);
	engine_detach(map->engine, map->range + from, end - from);
	map->life.stored = min_size(map->life.stored, size);
	map_resize(map, size);
	map_move(map);
}

/* ---- The backing store ---- */

/* Whether the new range overlaps the range in a backing store, so that writing one destroys the
 * other. */
static bool range_meets(const struct mapping *map, const struct backing *t,
			const struct remap *want)
{
	return t->store && io_same(t->store, want->store) && want->offset < t->offset + map->size &&
	       t->offset < want->offset + want->size;
}

/* Makes contents of the old backing store durable: no later flush covers them. If the flush fails,
 * segments that are in memory are dirty again, and migrate from memory. */
static int flush_old(struct mapping *map)
{
	uint64_t before = flush_lost(map);

	flush_background(map);
	if (flush_lost(map) == before)
		return 0;
	sync_explain(map, -EIO);
	return -EIO;
}

/* From now on, changes are written to the new backing store. There must not be an older one. */
static void set_new_backing(struct mapping *map, const struct remap *want, enum migration how)
{
	map->current = !map->current;
	map->backings[map->current] = (struct backing){ .store = io_hold(want->store),
							.offset = want->offset,
							.read = !map->blank };
	map_set_migration(map, how);
}

static void switch_over(struct mapping *map, struct store *store, uint64_t offset)
{
	struct backing before;
	bool same;

	teardown(map, 0);
	map_reset(map, 0);
	io_hold(store);
	sync_close_older(map);
	before = map->backings[map->current];
	/* Bytes that eviction has written to the same store must become durable later. */
	same = io_same(before.store, store);
	map->backings[map->current].store = NULL;
	map->backings[0] = (struct backing){ .store = store, .offset = offset, .read = true };
	map->current = 0;
	map->blank = false;
	lock_drop(before.lock);
	io_close(before.store);
	map->life.stored = map_stored_in(store, offset, map->size);
	writeback_take_error(map);
	flush_forget(map, same);
}

/* Changes a mapping whose segments are hidden from faults on other mappings. */
static int change_hidden(struct mapping *map, const struct remap *want)
{
	bool growing = want->size > map->size, shrinking = want->size < map->size;
	size_t last = (want->size - 1) >> map->shift;
	struct growth g = { 0 };
	int err = 0;

	if (growing)
		err = prepare_growth(map, want, &g);
	else if (shrinking)
		/* The new last segment is mapped again later, with fewer pages. */
		err = seg_unmap_all(map, last, last + 1);
	if (err)
		return err;
	if (want->moved && !want->switch_over)
		set_new_backing(map, want, MIGRATE_ANY);
	if (growing)
		finish_growth(map, &g);
	/* The size has changed before: all of the mapped range is dropped. */
	if (want->switch_over)
		switch_over(map, want->store, want->offset);
	if (shrinking)
		shrink_mapping(map, want->size);
	return 0;
}

static int hide_and_change(struct mapping *map, const struct remap *want)
{
	int err;

	seg_hide(map);
	err = change_hidden(map, want);
	seg_show(map);
	return err;
}

static int resize_mapping(struct mapping *map, size_t size)
{
	const struct backing *t = &map->backings[map->current];

	return hide_and_change(map, &(struct remap){ .store = t->store, .offset = t->offset,
						     .size = size });
}

/* ---- Moving contents within their store ---- */

/*
 * If the old and the new range overlap, the contents move at once, in the order of memmove(3). The
 * mapping was synced before.
 */

/* Moves the contents back after a failure. If that fails, too, the next sync continues in the same
 * order. */
static void move_back(struct mapping *map, struct remap *want, bool up)
{
	seg_hide(map);
	map->current = !map->current;
	map_set_migration(map, up ? MIGRATE_ASCENDING : MIGRATE_DESCENDING);
	seg_show(map);
	if (sync_migrate(map, 0, map->segs) == 0) {
		sync_close_older(map);
		return;
	}
	map->backings[!map->current].lock = want->lock;
	want->lock = NULL;
	log_line(LOG_ERROR, "remap", "cannot move the contents of '%s', nor move them back: "
		 "storage failed. A part of them is at the old place in the file and a part at the "
		 "new place, until a sync of the mapping succeeds. Try to repair the storage, and "
		 "sync again", map->name);
}

static int move_contents(struct mapping *map, struct remap *want)
{
	bool up = want->offset > map->backings[map->current].offset;
	int err = 0;

	/* The mapping shrinks first: bytes beyond its new end are not written. */
	if (want->size < map->size)
		err = resize_mapping(map, want->size);
	if (err)
		return err;
	seg_hide(map);
	set_new_backing(map, want, up ? MIGRATE_DESCENDING : MIGRATE_ASCENDING);
	seg_show(map);
	err = sync_migrate(map, 0, map->segs);
	if (err)
		fail(-err, "cannot move the contents of '%s': %s", map->name, strerror(-err));
	else if (want->size > map->size)
		err = resize_mapping(map, want->size);
	if (err)
		move_back(map, want, up);
	else
		sync_close_older(map);
	return err;
}

static int apply_change(struct mapping *map, struct remap *want)
{
	const struct backing *older = &map->backings[!map->current];
	bool carrying = want->moved && !want->switch_over;
	bool overlap = carrying && range_meets(map, &map->backings[map->current], want);
	/* There is at most one older backing store. It is read until the migration ends. */
	bool unfinished = map->migration &&
			  (carrying || map_in_order(map) || range_meets(map, older, want));
	int err = pagecache_unmap(map, 0, map->segs);

	if (err)
		return fail(-err, "cannot unmap the page-cache pages of '%s': %s", map->name,
			    strerror(-err));
	if (overlap || (unfinished && !want->switch_over))
		err = sync_all(map);
	else if (carrying)
		err = flush_old(map);
	if (err)
		return err;
	return overlap ? move_contents(map, want) : hide_and_change(map, want);
}

/* ---- Mappings in place ---- */

/* Makes segments and backing stores as in a new mapping, after a sync. */
static void reset_mapping(struct mapping *map)
{
	struct backing now = map->backings[map->current];

	seg_hide(map);
	teardown(map, 0);
	map_reset(map, 0);
	seg_show(map);
	map->backings[map->current].store = NULL;
	map->backings[0] = now;
	map->current = 0;
}

/* Only a store that has all contents can be mapped in place. If the sync fails, segments keep the
 * rest, and the next sync tries again. */
void remap_in_place(struct mapping *map)
{
	int earlier, err;

	if (!io_maps(map->backings[map->current].store))
		return;
	earlier = writeback_take_error(map);
	err = sync_all(map);
	/* An error of this attempt is of no use to the program. */
	writeback_take_error(map);
	writeback_keep_error(map, earlier);
	if (err)
		return;
	reset_mapping(map);
	if (inplace_enter(map) < 0)
		log_line(LOG_WARN, "remap", "%s. The mapping uses segments instead",
			 fail_message());
}

/* A mapping in place changes like a mapping all of whose segments are absent. */
static int apply_in_place(struct mapping *map, struct remap *want)
{
	int err = inplace_leave(map);

	if (err)
		return err;
	err = apply_change(map, want);
	remap_in_place(map);
	return err;
}

int remap_apply(struct mapping *map, struct remap *want)
{
	if (map->life.pinned)
		return fail(EBUSY, "cannot change the mapping of '%s': part of it is pinned. Try "
			    "umunpin first", map->name);
	if (map->copy)
		return fail(EOPNOTSUPP, "cannot change the mapping of '%s': it belongs to a node "
			    "copy (UMMAP_NODE). Try to end it and to map the other store",
			    map->name);
	return map->in_place ? apply_in_place(map, want) : apply_change(map, want);
}
