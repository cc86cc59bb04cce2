/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umremap. A migration only changes which store is written: each header says which of two backing stores holds its
 * segment, and segments of the older one count as dirty. There is never a third one: an earlier migration is completed
 * first. Where both places overlap, contents move at once. The mapping has no other user meanwhile.
 */
#include "paging/mapping/remap.h"

#include "paging/mapping/teardown.h"
#include "engine/engine.h"
#include "paging/sync/flush.h"
#include "paging/mapping/inplace.h"
#include "paging/residency/pagecache.h"
#include "paging/mapping/lock.h"
#include "base/log.h"
#include "paging/fault/segment.h"
#include "paging/sync/sync.h"
#include "paging/sync/writeback.h"

#include <string.h>

/* ---- The size: what can fail comes first and can be undone, the rest cannot fail. ---- */

/* What a mapping needs to grow. */
struct growth {
	char *range;            /* where it will stand */
	size_t old;
	size_t old_segs;
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

/* Room mapped for `size` bytes: where it stands, or else somewhere else. */
static int reserve_view(struct mapping *map, size_t size, char **range)
{
	char *end = map->range + round_up(map->size, sys_page());
	size_t more = (size_t)(map->range + round_up(size, sys_page()) - end);

	*range = map->range;
	/* A place of another mapping may be empty for the moment that a frame takes to leave it. */
	if (!(more && map_meets(end, more)) && engine_extend(map->engine, map->range, map->size, size - map->size,
						       map->writable))
		return 0;
	return engine_attach(map->engine, size, map->seg_size, 0, 0, map->writable, range);
}

/* Whether the last segment is going to be read, at whatever length it then has. */
static bool is_as_stored(const struct mapping *map, const struct remap *want)
{
	const struct seg *s = map_seg(map, map->segs - 1);

	return !want->moved && !seg_has(s, SEG_VALID) && seg_backing(s) == map->current &&
	       map->backings[map->current].read;
}

/* A short last segment gains bytes of the backing store that the mapping is going to have; it goes back to the pool,
 * and they are filled in there. */
static int prepare_growth(struct mapping *map, const struct remap *want, struct growth *g)
{
	size_t last = map->segs - 1;
	int err;

	g->old = map->size;
	g->old_segs = map->segs;
	err = reserve_view(map, want->size, &g->range);
	if (err)
		return err;
	err = seg_unmap_all(map, g->range == map->range ? last : 0, map->segs);
	if (err)
		fail(-err, "cannot grow the mapping of '%s': %s", map->name, strerror(-err));
	if (!err && !want->switch_over && !is_as_stored(map, want)) {
		err = seg_lengthen(map, min_size(want->size, map->segs << map->shift), want->store, want->offset);
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

static void grow(struct mapping *map, const struct growth *g)
{
	const struct backing *t = &map->backings[map->current];

	if (g->range != map->range)
		engine_detach(map->engine, map->range, g->old);
	map->range = g->range;
	for (size_t i = g->old_segs; map->current && i < map->segs; i++)
		seg_set_backing(map_seg(map, i), map->current);
	map->life.stored = max_size(map->life.stored, map_stored_in(t->store, t->offset, map->size));
	map_move(map);
}

static void shrink(struct mapping *map, size_t size)
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

/* ---- The backing store. ---- */

/* Whether the place that the mapping is to have overlaps that of a backing store, so that writing one destroys the
 * other. */
static bool meets(const struct mapping *map, const struct backing *t, const struct remap *want)
{
	return t->store && io_same(t->store, want->store) && want->offset < t->offset + map->size &&
	       t->offset < want->offset + want->size;
}

/* What was written to the old backing store is read from it again, and no later flush covers it. If it fails now,
 * segments that are in memory migrate from there. */
static int flush_old(struct mapping *map)
{
	uint64_t before = flush_lost(map);

	flush_background(map);
	if (flush_lost(map) == before)
		return 0;
	sync_explain(map, -EIO);
	return -EIO;
}

/* From now on changes go to the new backing store. There is no older one. */
static void rebase(struct mapping *map, const struct remap *want, enum migration how)
{
	map->current = !map->current;
	map->backings[map->current] = (struct backing){ .store = io_hold(want->store), .offset = want->offset,
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
	/* What eviction has written to it shows, and is to be made durable with the rest. */
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

/* All that changes the mapping, while faults on other mappings keep off its segments. */
static int change(struct mapping *map, const struct remap *want)
{
	bool growing = want->size > map->size, shrinking = want->size < map->size;
	struct growth g = { 0 };
	int err = 0;

	if (growing)
		err = prepare_growth(map, want, &g);
	else if (shrinking)
		/* The last segment that stays goes back to the pool: it comes back with fewer pages. */
		err = seg_unmap_all(map, (want->size - 1) >> map->shift, ((want->size - 1) >> map->shift) + 1);
	if (err)
		return err;
	if (want->moved && !want->switch_over)
		rebase(map, want, MIGRATE_ANY);
	if (growing)
		grow(map, &g);
	/* It forgets all of the mapped range: the one that has the mapping's size. */
	if (want->switch_over)
		switch_over(map, want->store, want->offset);
	if (shrinking)
		shrink(map, want->size);
	return 0;
}

static int change_alone(struct mapping *map, const struct remap *want)
{
	int err;

	seg_hide(map);
	err = change(map, want);
	seg_show(map);
	return err;
}

static int resize(struct mapping *map, size_t size)
{
	const struct backing *t = &map->backings[map->current];

	return change_alone(map, &(struct remap){ .store = t->store, .offset = t->offset, .size = size });
}

/* ---- Contents that move within their store, to where some of them are: at once, as memmove moves them, from the end
 * whose bytes would be overwritten first. All was synced before. ---- */

/* The other way round. What can be neither here nor there waits for a sync, which goes on in the same order. */
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

static int move(struct mapping *map, struct remap *want)
{
	bool up = want->offset > map->backings[map->current].offset;
	int err = 0;

	/* First, so that nothing is written that is in neither place. */
	if (want->size < map->size)
		err = resize(map, want->size);
	if (err)
		return err;
	seg_hide(map);
	rebase(map, want, up ? MIGRATE_DESCENDING : MIGRATE_ASCENDING);
	seg_show(map);
	err = sync_migrate(map, 0, map->segs);
	if (err)
		fail(-err, "cannot move the contents of '%s': %s", map->name, strerror(-err));
	else if (want->size > map->size)
		err = resize(map, want->size);
	if (err)
		move_back(map, want, up);
	else
		sync_close_older(map);
	return err;
}

static int apply(struct mapping *map, struct remap *want)
{
	bool carrying = want->moved && !want->switch_over;
	bool overlap = carrying && meets(map, &map->backings[map->current], want);
	/* There is one older backing store at most, and it is read from until it is complete. */
	bool unfinished = map->migration && (carrying || map_in_order(map) || meets(map, &map->backings[!map->current], want));
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
	return overlap ? move(map, want) : change_alone(map, want);
}

/* ---- In place. ---- */

/* All is in the store: segments and backing stores are as in a new mapping. */
static void start_again(struct mapping *map)
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

/* Only a store that has all of it can be the mapped range. Where that cannot be had now, segments
 * hold the rest until the next sync tries again. */
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
	start_again(map);
	if (inplace_enter(map) < 0)
		log_line(LOG_WARN, "remap", "%s. The mapping uses segments instead",
			 fail_message());
}

/* A mapping in place changes as one of segments does, all of which are absent. */
static int apply_in_place(struct mapping *map, struct remap *want)
{
	int err = inplace_leave(map);

	if (err)
		return err;
	err = apply(map, want);
	remap_in_place(map);
	return err;
}

int remap_apply(struct mapping *map, struct remap *want)
{
	if (map->life.pinned)
		return fail(EBUSY, "cannot change the mapping of '%s': part of it is pinned. Try "
			    "umunpin first", map->name);
	return map->in_place ? apply_in_place(map, want) : apply(map, want);
}
