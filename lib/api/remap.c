/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umremap. Carrying is only a change of where changes go: each header says which of two targets holds its segment,
 * and those of the older one count as changed. A third one there cannot be: the older is completed first. Where both
 * places overlap, contents move at once. Nobody else uses the mapping meanwhile.
 */
#include "api/remap.h"

#include "paging/ending.h"
#include "engine/engine.h"
#include "paging/flush.h"
#include "paging/inplace.h"
#include "paging/lend.h"
#include "paging/lock.h"
#include "base/log.h"
#include "paging/segment.h"
#include "paging/writeback.h"

#include <string.h>

uint64_t remap_stored(struct store *store, uint64_t offset, size_t size)
{
	uint64_t have = io_size(store);

	have = have > offset ? have - offset : 0;
	return have < size ? have : size;
}

/* ---- The size: what can fail comes first and can be undone, the rest cannot fail. ---- */

/* What a mapping needs to grow. */
struct growth {
	char *view;            /* where it will stand */
	size_t old;
	size_t old_segs;
};

static void undo_growth(struct set *set, const struct growth *g, size_t size)
{
	size_t end = round_up(g->old, sys_page());

	set_resize(set, g->old);
	if (g->view == set->view)
		engine_detach(set->engine, set->view + end, round_up(size, sys_page()) - end);
	else
		engine_detach(set->engine, g->view, size);
}

/* Room in the view for `size` bytes: where it stands, or else somewhere else. */
static int reserve_view(struct set *set, size_t size, char **view)
{
	char *end = set->view + round_up(set->size, sys_page());
	size_t more = (size_t)(set->view + round_up(size, sys_page()) - end);

	*view = set->view;
	/* A place of another mapping may be empty for the moment that a frame takes to leave it. */
	if (!(more && map_meets(end, more)) && engine_extend(set->engine, set->view, set->size, size - set->size))
		return 0;
	*view = engine_attach(set->engine, size, set->seg_size, 0, 0);
	return *view ? 0 : fail(ENOMEM, "there is no address space for %zu bytes", size);
}

/* Whether the last segment is going to be read, at whatever length it then has. */
static bool is_as_stored(const struct set *set, const struct remap *want)
{
	const struct seg *s = set_seg(set, set->segs - 1);

	return !want->moved && !seg_has(s, SEG_VALID) && seg_target(s) == set->current &&
	       set->targets[set->current].read;
}

/* A short last segment gains bytes of the target that the mapping is going to have; it goes home, and they
 * are filled in there. */
static int prepare_growth(struct set *set, const struct remap *want, struct growth *g)
{
	size_t last = set->segs - 1;
	int err;

	g->old = set->size;
	g->old_segs = set->segs;
	err = reserve_view(set, want->size, &g->view);
	if (err)
		return err;
	err = seg_unmap_all(set, g->view == set->view ? last : 0, set->segs);
	if (err)
		fail(-err, "the mapping cannot move: %s", strerror(-err));
	if (!err && !want->switch_over && !is_as_stored(set, want)) {
		err = seg_lengthen(set, min_size(want->size, set->segs << set->shift), want->store, want->offset);
		if (err)
			fail(-err, "the end of the mapping cannot be read: %s", strerror(-err));
	}
	if (!err)
		err = set_resize(set, want->size);
	if (err)
		undo_growth(set, g, want->size);
	return err;
}

static void grow(struct map *map, const struct growth *g)
{
	struct set *set = &map->set;
	const struct target *t = &set->targets[set->current];

	if (g->view != set->view)
		engine_detach(set->engine, set->view, g->old);
	set->view = g->view;
	for (size_t i = g->old_segs; set->current && i < set->segs; i++)
		seg_set_target(set_seg(set, i), set->current);
	set->stored = max_size(set->stored, remap_stored(t->store, t->offset, set->size));
	map_move(map);
}

static void shrink(struct map *map, size_t size)
{
	struct set *set = &map->set;
	size_t keep = ((size - 1) >> set->shift) + 1;
	size_t from = round_up(size, sys_page()), end = round_up(set->size, sys_page());

	ending_forget(set, keep);
	set_reset(set, keep);
	engine_detach(set->engine, set->view + from, end - from);
	set->stored = min_size(set->stored, size);
	set_resize(set, size);
	map_move(map);
}

/* ---- The target. ---- */

/* Whether the place that the mapping is to have overlaps that of a target, so that writing one destroys the other. */
static bool meets(const struct set *set, const struct target *t, const struct remap *want)
{
	return t->store && io_same(t->store, want->store) && want->offset < t->offset + set->size &&
	       t->offset < want->offset + want->size;
}

/* What was written to the old target is read from it again, and nobody flushes it later. If it fails now, what is in
 * memory is carried from there. */
static int settle(struct map *map)
{
	struct set *set = &map->set;
	uint64_t before = set->flush.lost;

	flush(set);
	if (set->flush.lost == before)
		return 0;
	map_explain(map, -EIO);
	return -EIO;
}

/* From now on changes go to the new target. There is no older one. */
static void retarget(struct map *map, const struct remap *want, enum carry how)
{
	struct set *set = &map->set;

	set->current = !set->current;
	set->targets[set->current] = (struct target){ .store = io_hold(want->store), .offset = want->offset,
						      .read = !map->blank };
	set_carry(set, how);
}

static void switch_over(struct map *map, struct store *store, uint64_t offset)
{
	struct set *set = &map->set;
	struct target before;
	bool same;

	ending_forget(set, 0);
	set_reset(set, 0);
	io_hold(store);
	map_close_old(map);
	before = set->targets[set->current];
	/* What eviction has written to it shows, and is to be made durable with the rest. */
	same = io_same(before.store, store);
	set->targets[set->current].store = NULL;
	set->targets[0] = (struct target){ .store = store, .offset = offset, .read = true };
	set->current = 0;
	lock_drop(before.lock);
	io_close(before.store);
	set->stored = remap_stored(store, offset, set->size);
	set->error = 0;
	flush_forget(set, same);
}

/* All that changes the set, while faults on other mappings keep off its segments. */
static int change(struct map *map, const struct remap *want)
{
	struct set *set = &map->set;
	bool growing = want->size > set->size, shrinking = want->size < set->size;
	struct growth g = { 0 };
	int err = 0;

	if (growing)
		err = prepare_growth(set, want, &g);
	else if (shrinking)
		/* The last segment that stays goes home: it comes back with fewer pages. */
		err = seg_unmap_all(set, (want->size - 1) >> set->shift, ((want->size - 1) >> set->shift) + 1);
	if (err)
		return err;
	if (want->moved && !want->switch_over)
		retarget(map, want, CARRY_ANY);
	if (growing)
		grow(map, &g);
	/* It forgets all of the view: the one that has the set's size. */
	if (want->switch_over)
		switch_over(map, want->store, want->offset);
	if (shrinking)
		shrink(map, want->size);
	return 0;
}

static int change_alone(struct map *map, const struct remap *want)
{
	int err;

	seg_hide(&map->set);
	err = change(map, want);
	seg_show(&map->set);
	return err;
}

static int resize(struct map *map, size_t size)
{
	const struct target *t = &map->set.targets[map->set.current];

	return change_alone(map, &(struct remap){ .store = t->store, .offset = t->offset, .size = size });
}

/* ---- Contents that move within their store, to where some of them are: at once, as memmove moves them, from the end
 * whose bytes would be overwritten first. All was synced before. ---- */

/* The other way round. What can be neither here nor there waits for a sync, which goes on in the same order. */
static void move_back(struct map *map, struct remap *want, bool up)
{
	struct set *set = &map->set;

	seg_hide(set);
	set->current = !set->current;
	set_carry(set, up ? CARRY_ASCENDING : CARRY_DESCENDING);
	seg_show(set);
	if (map_complete(map, 0, set->segs) == 0) {
		map_close_old(map);
		return;
	}
	set->targets[!set->current].lock = want->lock;
	want->lock = NULL;
	log_line(LOG_ERROR, "remap", "storage failed while contents moved, and while they moved back: the file holds part of "
		 "them at the old and part at the new place, until a sync of the mapping succeeds");
}

static int move(struct map *map, struct remap *want)
{
	struct set *set = &map->set;
	bool up = want->offset > set->targets[set->current].offset;
	int err = 0;

	/* First, so that nothing is written that is in neither place. */
	if (want->size < set->size)
		err = resize(map, want->size);
	if (err)
		return err;
	seg_hide(set);
	retarget(map, want, up ? CARRY_DESCENDING : CARRY_ASCENDING);
	seg_show(set);
	err = map_complete(map, 0, set->segs);
	if (err)
		fail(-err, "the contents cannot be moved: %s", strerror(-err));
	else if (want->size > set->size)
		err = resize(map, want->size);
	if (err)
		move_back(map, want, up);
	else
		map_close_old(map);
	return err;
}

static int apply(struct map *map, struct remap *want)
{
	struct set *set = &map->set;
	bool carrying = want->moved && !want->switch_over;
	bool overlap = carrying && meets(set, &set->targets[set->current], want);
	/* There is one older target at most, and it is read from until it is complete. */
	bool unfinished = set->carry && (carrying || set_in_order(set) || meets(set, &set->targets[!set->current], want));
	int err = lend_recall(set, 0, set->segs);

	if (err)
		return fail(-err, "what is lent cannot be taken back: %s", strerror(-err));
	if (overlap || (unfinished && !want->switch_over))
		err = map_sync(map);
	else if (carrying)
		err = settle(map);
	if (err)
		return err;
	return overlap ? move(map, want) : change_alone(map, want);
}

/* ---- In place. ---- */

/* All is in the store: segments and targets are as in a new mapping. */
static void start_again(struct set *set)
{
	struct target now = set->targets[set->current];

	seg_hide(set);
	ending_forget(set, 0);
	set_reset(set, 0);
	seg_show(set);
	set->targets[set->current].store = NULL;
	set->targets[0] = now;
	set->current = 0;
}

/* Puts a mapping that was in place there again, if its store allows it: only one that has all of it can be the
 * view. Where that cannot be had now, segments hold the rest until the next sync tries again. */
static void go_back(struct map *map)
{
	struct set *set = &map->set;
	int earlier = writeback_take_error(set), err = map_sync(map);

	set->error = earlier;
	if (err)
		return;
	start_again(set);
	if (inplace_enter(set) < 0)
		log_line(LOG_WARN, "remap", "%s; it goes on with segments", fail_message());
}

/* A mapping in place changes as one of segments does, all of which are absent. */
static int apply_in_place(struct map *map, struct remap *want)
{
	struct set *set = &map->set;
	int err = inplace_leave(set);

	if (err)
		return err;
	err = apply(map, want);
	if (io_maps(set->targets[set->current].store))
		go_back(map);
	return err;
}

int remap_apply(struct map *map, struct remap *want)
{
	if (map->set.pinned)
		return fail(EBUSY, "part of the mapping is pinned; umunpin it first");
	return map->set.in_place ? apply_in_place(map, want) : apply(map, want);
}
