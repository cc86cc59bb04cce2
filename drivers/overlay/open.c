/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening and closing an overlay file, and the checks of stores that may have one beside them.
 * Functions of this file allocate memory, and must not run in signal handlers.
 */
#include "overlay.h"

#include "../file.h"
#include "../keys.h"
#include "common/futex.h"
#include "common/memory_calls.h"
#include "common/minmax.h"
#include "common/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define COW_SUFFIX ".cow"

/* ---- Opening ---- */

static bool ends(const char *text, size_t size)
{
	return memchr(text, '\0', size);
}

/* Sums say that a header is as it was written, but not that this code has written it. */
static bool is_sound(const struct overlay_head *h)
{
	bool is_power = h->block && !(h->block & (h->block - 1));

	return is_power && h->block >= OVERLAY_BLOCK && h->block <= OVERLAY_BLOCK_MAX &&
	       (h->block == OVERLAY_BLOCK || h->policy == OVERLAY_CACHE) &&
	       h->slots_max < OVERLAY_NO_SLOT && h->base <= h->home && h->home < INT64_MAX &&
	       h->base_size <= INT64_MAX && h->floor < INT64_MAX && h->base <= h->floor &&
	       h->goal <= INT64_MAX && (!h->goal || h->goal > h->base) &&
	       ends(h->store.name, sizeof(h->store.name)) && ends(h->way, sizeof(h->way)) &&
	       ends(h->uri, sizeof(h->uri));
}

static const char *name_of(uint64_t policy)
{
	static const char *const names[] = { "?", "wal", "cow", "cache" };

	return names[policy < 4 ? policy : 0];
}

/* The file has a header that is not the one of this version, or none. */
static int refuse_header(const struct overlay *o, struct ummap_geom *geom)
{
	static const char *const earlier[] = { "walhead1", "cowhead1", "cachehd2" };
	char magic[2][8] = { "", "" };

	for (unsigned i = 0; i < 2; i++)
		side_read((struct side *)(uintptr_t)&o->file, magic[i], 8, i * HEADER_SLOT);
	for (unsigned i = 0; i < 6; i++) {
		if (memcmp(magic[i % 2], earlier[i / 2], 8) == 0)
			return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it was made by an "
					   "earlier version of libummap. Try to open it with that "
					   "version, or drop it", o->file.path);
	}
	for (unsigned i = 0; i < 2; i++) {
		if (memcmp(magic[i], "umovrly", 7) == 0 && magic[i][7] != '1')
			return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it has version "
					   "'%c' of the format, and this library knows version 1. "
					   "Try another version of libummap", o->file.path,
					   magic[i][7]);
	}
	return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it is no %s, or its header is "
			   "damaged%s", o->file.path, o->policy->file,
			   o->file.device ? ". Try zeros in its first MiB" : "");
}

/* Whether the file is a device that begins with zeros. */
static bool is_blank(struct overlay *o)
{
	static const char zeros[4096];
	char page[sizeof(zeros)];
	uint64_t length;

	if (!o->file.device || side_size(&o->file, &length) < 0)
		return false;
	for (uint64_t at = 0; at < min_u64(length, SIDE_BLANK); at += sizeof(zeros))
		if (side_read(&o->file, page, sizeof(page), at) < 0 ||
		    memcmp(page, zeros, sizeof(page)) != 0)
			return false;
	return true;
}

/* 0: the file has a header; 1: it is new, or was never used. */
static int read_head(struct overlay *o, struct ummap_geom *geom)
{
	int err;

	o->slots = side_header(OVERLAY_MAGIC);
	err = header_read(&o->slots, &o->file, &o->head, sizeof(o->head));
	if (err == 1 || (err == -ENODATA && is_blank(o)))
		return 1;
	if (err == -ENODATA || (!err && !is_sound(&o->head)))
		return refuse_header(o, geom);
	if (err)
		return err;
	if (o->policy->id && o->head.policy != o->policy->id)
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it is no %s, but a file "
				   "of %s+", o->file.path, o->policy->file,
				   name_of(o->head.policy));
	return 0;
}

int overlay_open(struct overlay *o, const struct overlay_opening *how, struct ummap_geom *geom)
{
	int oflags = how->write ? UMMAP_O_WRITE | (how->create ? UMMAP_O_CREATE : 0) : 0;
	int lock = how->write ? UMMAP_LOCK_EXCLUSIVE : how->lock, err;

	/* The page cache would hold bytes a second time that are in memory of the mapping, and the
	 * copy takes time. Checksums are taken of single parts, which are read together then. */
	if (o->policy->id == OVERLAY_CACHE && !o->verifies)
		oflags |= SIDE_READS_DIRECT;
	o->limit = OVERLAY_NEVER;
	o->keep = 1;
	overlay_forget_slots(o);
	err = side_open(&o->file, how->path, oflags, how->mode, lock, geom);
	if (err)
		return err;
	if (o->policy->id != OVERLAY_CACHE)
		err = side_must_be_file(&o->file, geom);
	if (!err)
		err = read_head(o, geom);
	if (!err)
		err = overlay_find_newest(o);
	/* The first header is in slot 1. Before the first commit, both slots are written. */
	if (!err && o->slots.number == 1 && o->newest.number > o->head.base)
		o->slots.damaged |= 1;
	if (err < 0 && !*geom->why)
		keys_refuse(geom, -err, "cannot read '%.140s': %s", how->path, strerror(-err));
	if (err < 0)
		overlay_close(o);
	return err;
}

int overlay_open_head(struct overlay *o, const char *path, struct ummap_geom *geom)
{
	int err;

	overlay_forget_slots(o);
	err = side_open(&o->file, path, 0, 0, UMMAP_LOCK_NONE, geom);
	if (err)
		return err;
	err = read_head(o, geom);
	if (err)
		overlay_close(o);
	return err;
}

bool overlay_has_head(struct overlay *o)
{
	struct header slots = side_header(OVERLAY_MAGIC);
	uint64_t first;

	return header_read(&slots, &o->file, &first, sizeof(first)) == 0 &&
	       slots.number == o->slots.number;
}

int overlay_refuse_damaged(const struct overlay *o, struct ummap_geom *geom)
{
	return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it is damaged at byte %ju. Try "
			   "`ummap %s` to show or remove it", o->file.path,
			   (uintmax_t)o->damaged_at, name_of(o->head.policy));
}

int overlay_go_back(struct overlay *o, uint64_t number, struct ummap_geom *geom)
{
	uint64_t floor = max_u64(o->newest.floor, o->head.floor), newest = o->newest.number;
	bool holds = false;
	int err;

	if (number < floor || number > newest ||
	    !overlay_find_commit(o, number, &o->newest))
		return keys_refuse(geom, EINVAL, "cannot go back to commit %ju: '%.140s' has the "
				   "commits %ju to %ju", (uintmax_t)number, o->file.path,
				   (uintmax_t)floor, (uintmax_t)newest);
	o->newest.floor = max_u64(o->newest.floor, floor);
	err = overlay_scan(o, &o->newest, false, &holds);
	if (!err && !holds)
		err = overlay_refuse_damaged(o, geom);
	o->goes_back = number < newest;
	return err;
}

/* ---- The index ---- */

static void *allocate(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Puts a slot into the chain of those with the same block. A slot that a commit after the floor has
 * superseded is old; one that an earlier commit has superseded is free. */
static int load_block(struct overlay *o, uint32_t slot)
{
	struct overlay_slot *s = overlay_slot(o, slot), *newer = NULL;
	uint64_t place = blockmap_get(&o->index, s->block);
	uint32_t older = place ? overlay_slot_at(o, place) : OVERLAY_NO_SLOT;
	int err;

	while (older != OVERLAY_NO_SLOT && overlay_slot(o, older)->commit > s->commit) {
		newer = overlay_slot(o, older);
		older = newer->older;
	}
	if (newer && newer->commit <= o->newest.floor)
		return 1;
	s->older = older;
	if (newer) {
		newer->older = slot;
		overlay_make_old(o, slot, newer->commit);
	} else {
		err = blockmap_reserve(&o->index, s->block, 1);
		if (err)
			return err;
		blockmap_set(&o->index, s->block, overlay_block_at(o, slot));
	}
	if (newer || older == OVERLAY_NO_SLOT)
		return 0;
	if (s->commit <= o->newest.floor)
		overlay_retire(o, older);
	else
		overlay_make_old(o, older, s->commit);
	return 0;
}

/* Whether a slot has a block behind the end of the store, or one that a cut has superseded. */
static bool is_behind_end(const struct overlay *o, const struct overlay_slot *s)
{
	uint64_t nblocks = (o->newest.size + o->head.block - 1) / o->head.block;

	if (s->block == OVERLAY_EMPTY)
		return false;
	return (s->block >= nblocks && !(s->flags & SLOT_CUT)) ||
	       overlay_is_cut(o, s->block, s->commit);
}

/* 1: the slot is free. */
static int load_slot(struct overlay *o, uint32_t slot)
{
	struct overlay_slot *s = overlay_slot(o, slot);

	if (is_behind_end(o, s))
		return 1;
	if (overlay_is_cache(o))
		return s->block == OVERLAY_EMPTY;
	if (s->commit == OVERLAY_NEVER || s->commit <= o->head.home)
		return 1;
	if (s->flags & SLOT_CUT)
		return 0;
	if (s->block != OVERLAY_EMPTY)
		return load_block(o, slot);
	if (s->commit <= o->newest.floor)
		return 1;
	overlay_make_old(o, slot, s->commit);
	return 0;
}

/* Loads the slots with commits up to the floor, or those with later ones. */
static int load_slots(struct overlay *o, bool later)
{
	uint32_t end = o->ngroups * OVERLAY_GROUP;
	int err = 0;

	for (uint32_t slot = 0; slot < end && err >= 0; slot++) {
		struct overlay_group *group = overlay_group(o, slot / OVERLAY_GROUP);
		struct overlay_slot *s = overlay_slot(o, slot);

		if ((s->commit > o->newest.floor) != later)
			continue;
		err = load_slot(o, slot);
		if (err == 1) {
			s->block = OVERLAY_EMPTY;
			s->commit = OVERLAY_NEVER;
			/* An empty record has no OVERLAY_DIRTY, but the next block may be dirty. */
			s->flags &= SLOT_COPY;
			continue;
		}
		overlay_set_bit(group->used, slot);
		o->used++;
	}
	return err < 0 ? err : 0;
}

/* The slots with commits up to the floor come first, in any order: only the newest one of each
 * block is needed. The others may have been written over, whatever came after the floor. */
int overlay_load(struct overlay *o)
{
	int err;

	o->newest.floor = max_u64(o->newest.floor, o->head.floor);
	o->next = o->newest.number + 1;
	o->digest = o->newest.digest;
	o->size = o->newest.size;
	o->released = o->newest.floor;
	overlay_note_cuts(o);
	err = load_slots(o, false);
	if (!err)
		err = load_slots(o, true);
	overlay_forget_free_cuts(o);
	overlay_reclaim(o);
	return err;
}

/* ---- Writing ---- */

static int allocate_buffers(struct overlay *o)
{
	char *at = allocate(OVERLAY_DRAFTS * OVERLAY_RUN_BYTES + OVERLAY_BLOCK);

	if (!at)
		return -ENOMEM;
	o->part = at + OVERLAY_DRAFTS * OVERLAY_RUN_BYTES;
	for (unsigned i = 0; i < OVERLAY_DRAFTS; i++)
		o->drafts[i].blocks = at + i * OVERLAY_RUN_BYTES;
	return 0;
}

int overlay_create(struct overlay *o)
{
	int err = allocate_buffers(o);

	if (err)
		return err;
	o->head.salt = random_id();
	o->head.policy = o->policy->id;
	o->head.block = o->head.block ? o->head.block : OVERLAY_BLOCK;
	o->head.home = o->head.floor = o->head.base;
	overlay_find_commit(o, o->head.base, &o->newest);
	err = overlay_write_head(o);
	/* The next attempt must not find a header that a failed flush has lost. */
	if (err)
		side_resize(&o->file, 0);
	return err ? err : overlay_load(o);
}

int overlay_create_for(struct overlay *o, const struct store_facts *store,
		       const struct ummap_uri *uri)
{
	o->head.base_size = store->size;
	o->head.store = *store;
	behind_way(uri, o->head.way);
	behind_uri(uri, o->head.uri, sizeof(o->head.uri));
	return overlay_create(o);
}

/* While `goal` is in the header, commits after it do not count, whatever is left of them. */
static int set_goal(struct overlay *o, uint64_t goal)
{
	o->head.goal = goal;
	o->head.floor = max_u64(o->head.floor, o->newest.floor);
	return overlay_write_head(o);
}

int overlay_make_ready(struct overlay *o)
{
	bool goes_back = o->goes_back || o->head.goal;
	bool erases = goes_back || o->has_newer || o->acked > o->newest.number;
	int err = allocate_buffers(o);

	if (!err)
		err = side_flush(&o->file);
	if (err)
		return err;
	header_set_flushed(&o->slots);
	err = header_mend(&o->slots, &o->file, &o->head, sizeof(o->head));
	if (!err && goes_back)
		err = set_goal(o, o->newest.number + 1);
	if (!err && erases) {
		err = overlay_erase_newer(o);
		if (!err)
			err = side_flush(&o->file);
	}
	if (!err && goes_back)
		err = set_goal(o, 0);
	return err;
}

/* Whether the newest commit is in the file still. */
static bool has_newest(struct overlay *o)
{
	struct overlay_commit now, was;

	if (!overlay_find_commit(o, o->newest.number, &was) || !was.magic)
		return o->newest.number == o->head.base;
	return side_read(&o->file, &now, sizeof(now), overlay_commit_at(was.number)) == 0 &&
	       now.magic == was.magic && now.number == was.number && now.digest == was.digest;
}

int overlay_resume(struct overlay *o)
{
	struct header slots = side_header(OVERLAY_MAGIC);
	struct overlay_head head;
	int err;

	futex_lock(&o->file_lock);
	err = header_read(&slots, &o->file, &head, sizeof(head));
	if (!err && slots.number != o->slots.number) {
		o->slots = slots;
		err = overlay_write_head(o);
	}
	if (!err && !has_newest(o))
		err = -EIO;
	if (err)
		o->broken = true;
	futex_unlock(&o->file_lock);
	return err ? -EIO : 0;
}

int overlay_reload(struct overlay *o, bool *changed)
{
	struct header slots = side_header(OVERLAY_MAGIC);
	struct ummap_geom unused = { .size = 0 };
	struct overlay_head head;
	int err = header_read(&slots, &o->file, &head, sizeof(head));

	*changed = err || slots.number != o->slots.number || !has_newest(o);
	if (err || !*changed)
		return err;
	overlay_forget_slots(o);
	err = read_head(o, &unused);
	return err ? err : overlay_find_newest(o);
}

void overlay_close(struct overlay *o)
{
	overlay_dismiss_crew(o);
	overlay_forget_slots(o);
	if (o->part)
		raw_munmap(o->drafts->blocks, OVERLAY_DRAFTS * OVERLAY_RUN_BYTES + OVERLAY_BLOCK);
	o->part = NULL;
	side_close(&o->file);
}

/* ---- Checks of stores ---- */

static const struct overlay_policy any_log = { .file = "log of wal+", .id = OVERLAY_WAL };
static const struct overlay_policy any_changes = { .file = "file of cow+", .id = OVERLAY_COW };

static int read_beside(struct overlay *o, const char *path, int lock)
{
	struct ummap_geom own = { .size = 0 };
	uint64_t newest;
	int err = side_open(&o->file, path, 0, 0, lock, &own);

	if (err)
		return err == -ENOENT ? 1 : err;
	err = read_head(o, &own);
	if (!err)
		err = overlay_read_commits(o, &newest);
	if (!err)
		o->newest.number = max_u64(newest, o->acked);
	side_close(&o->file);
	return err;
}

/* Whether a log has commits that are not in the store, or the store may have bytes that are in no
 * commit: 0, 1, or a negative errno value. A log with
 * a damaged header may have some. Another process may have locked the log. */
static int has_commits(const char *path)
{
	struct overlay o = { .policy = &any_log };
	int err = read_beside(&o, path, UMMAP_LOCK_NONE);

	if (err)
		return err == -EUCLEAN ? 1 : err > 0 ? 0 : err;
	return o.newest.number > o.head.home || o.head.flags & OVERLAY_TAIL;
}

/* Whether a file of changes says that the store has a part of them. false also if another handle
 * has a lock that excludes `lock`. */
static bool is_applying(const char *path, int lock)
{
	struct overlay o = { .policy = &any_changes };

	return read_beside(&o, path, lock) == 0 && o.head.flags & OVERLAY_APPLYING;
}

/* The path of a regular file beside a store; false: there is none. */
static bool find_beside(char path[PATH_MAX], const char *store, const char *suffix, struct stat *st)
{
	return overlay_beside(path, store, suffix) == 0 && stat(path, st) == 0 &&
	       S_ISREG(st->st_mode);
}

int overlay_check_store_cow(const char *store, struct ummap_geom *geom)
{
	char path[PATH_MAX];
	struct stat st;

	/* While a commit runs, or a mapping is handed over, the file is locked. */
	if (!find_beside(path, store, COW_SUFFIX, &st) || !is_applying(path, UMMAP_LOCK_NONE) ||
	    !is_applying(path, UMMAP_LOCK_SHARED))
		return 0;
	return keys_refuse(geom, EUCLEAN, "cannot open the store: the commit of '%.140s' to it was "
			   "interrupted. Try `ummap cow commit`", path);
}

int overlay_check_store(const char *store, struct ummap_geom *geom)
{
	char path[PATH_MAX];
	struct stat st;
	int has;

	if (!find_beside(path, store, WAL_SUFFIX, &st))
		return overlay_check_store_cow(store, geom);
	has = has_commits(path);
	if (has < 0)
		return keys_refuse(geom, EUCLEAN, "cannot read the log '%.140s', which may have "
				   "unapplied commits: %s", path, strerror(-has));
	if (has)
		return keys_refuse(geom, EUCLEAN, "cannot open the store: it lacks commits of "
				   "'%.140s', or has changes that are in none. Try wal+ with this "
				   "log, or `ummap wal apply`", path);
	/* This is no error. The user gets a message, unless a handle is being handed over. */
	if (!lock_group_find_offer(&st))
		keys_refuse(geom, 0, "the log '%.140s' is beside the store, but has no commits",
			    path);
	return overlay_check_store_cow(store, geom);
}
