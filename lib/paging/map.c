/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sorted table of address ranges. Writers change it in place under a lock, between two counts of a sequence
 * number; readers never wait for the lock, they look again if the number moved. Structures and outgrown
 * tables are kept for ever, because a reader may still look at them.
 */
#include "paging/map.h"

#include "paging/flush.h"
#include "paging/inplace.h"
#include "paging/lock.h"
#include "base/log.h"
#include "paging/segment.h"
#include "paging/writeback.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* So long what is written by parts goes on at a time. */
#define PART_MS 10

struct entry {
	_Atomic uintptr_t base, end;
	struct map *_Atomic map;
};

static struct entry *_Atomic table;
static _Atomic size_t count;
static size_t capacity;
static _Atomic uint32_t sequence;   /* odd while the table changes */
static _Atomic uint32_t lock;
static struct map *free_maps;
/* No mapping has ever been outside of these. */
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest;

struct map *map_alloc(void)
{
	struct map *map;

	futex_lock(&lock);
	map = free_maps;
	if (map)
		free_maps = map->next_free;
	futex_unlock(&lock);
	if (!map)
		return calloc(1, sizeof(*map));
	/* `users` may be touched by a late look-up, and is 0 but for that. */
	memset(&map->set.view, 0, sizeof(*map) - offsetof(struct map, set.view));
	return map;
}

void map_free(struct map *map)
{
	futex_lock(&lock);
	map->next_free = free_maps;
	free_maps = map;
	futex_unlock(&lock);
}

void map_name(struct map *map, const char *uri, int fd)
{
	char path[PATH_MAX], self[32];
	ssize_t len;

	if (fd >= 0) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		len = readlink(self, path, sizeof(path) - 1);
		path[len > 0 ? len : 0] = '\0';
		uri = path;
	}
	len = (ssize_t)strlen(uri);
	if (len < TABLE_NAME_LEN)
		memcpy(map->name, uri, (size_t)len + 1);
	else
		snprintf(map->name, sizeof(map->name), "...%s", uri + len - (TABLE_NAME_LEN - 4));
}

static void copy_entry(struct entry *to, const struct entry *from)
{
	to->base = from->base;
	to->end = from->end;
	to->map = from->map;
}

/* Under the lock. The old table stays for readers. */
static int grow(void)
{
	size_t more = capacity ? capacity * 2 : 256;
	struct entry *bigger = sys_lazy(more * sizeof(*bigger));

	if (!bigger)
		return fail(ENOMEM, "no memory for a table of %zu mappings", more);
	for (size_t i = 0; i < count; i++)
		copy_entry(&bigger[i], &table[i]);
	table = bigger;
	capacity = more;
	return 0;
}

/* Under the lock, with the number odd. */
static void put_in(struct map *map)
{
	uintptr_t base = (uintptr_t)map->set.view;
	struct entry *t = table;
	size_t i;

	for (i = count; i > 0 && t[i - 1].base > base; i--)
		copy_entry(&t[i], &t[i - 1]);
	t[i].base = base;
	t[i].end = base + round_up(map->set.size, sys_page());
	t[i].map = map;
	count++;
	lowest = t[i].base < lowest ? t[i].base : lowest;
	highest = t[i].end > highest ? t[i].end : highest;
}

static void take_out(struct map *map)
{
	struct entry *t = table;
	size_t i = 0;

	while (t[i].map != map)
		i++;
	for (count--; i < count; i++)
		copy_entry(&t[i], &t[i + 1]);
}

int map_insert(struct map *map)
{
	int err = 0;

	futex_lock(&lock);
	sequence++;
	if (count == capacity)
		err = grow();
	if (!err)
		put_in(map);
	sequence++;
	futex_unlock(&lock);
	return err;
}

void map_remove(struct map *map)
{
	futex_lock(&lock);
	sequence++;
	take_out(map);
	sequence++;
	futex_unlock(&lock);
}

void map_move(struct map *map)
{
	futex_lock(&lock);
	sequence++;
	take_out(map);
	put_in(map);
	sequence++;
	futex_unlock(&lock);
}

/* The first mapping that has bytes of [addr, addr + len); NULL: none. */
static struct map *search(uintptr_t addr, size_t len)
{
	/* In this order: the table only ever grows, and must have room for what is counted. */
	size_t low = 0, end = count, high = end;
	struct entry *t = table;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (t[mid].end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low < end && (t[low].base <= addr || t[low].base - addr < len) ? t[low].map : NULL;
}

/* The mapping that holds addr; *got: with a use of it. NULL: none. */
static struct map *look_up(const void *addr, bool *got)
{
	for (;;) {
		uint32_t before = sequence;
		struct map *map;

		if (before & 1) {
			sched_yield();
			continue;
		}
		map = search((uintptr_t)addr, 1);
		*got = map && set_get(&map->set);
		if (sequence == before)
			return map;
		if (*got)
			set_put(&map->set);
	}
}

struct map *map_get(const void *addr)
{
	struct map *map;
	bool got;

	while ((map = look_up(addr, &got)) && !got)
		set_wait(&map->set);
	return map;
}

struct map *map_try(const void *addr)
{
	bool got;
	struct map *map = look_up(addr, &got);

	return got ? map : NULL;
}

bool map_meets(const void *addr, size_t len)
{
	uintptr_t from = (uintptr_t)addr, low = lowest;

	/* The memory of most callers. */
	if (from >= highest || (from < low && len <= low - from))
		return false;
	for (;;) {
		uint32_t before = sequence;
		bool met = !(before & 1) && search(from, len);

		if (!(before & 1) && sequence == before)
			return met;
		sched_yield();
	}
}

struct map *map_get_alone(const void *base)
{
	for (;;) {
		struct map *map = map_get(base);

		if (!map)
			return NULL;
		if (map->set.view == base && set_freeze(&map->set))
			return map;
		set_put(&map->set);
		if (map->set.view != base)
			return NULL;
		set_wait(&map->set);
	}
}

struct map *map_get_nth(size_t n)
{
	for (;;) {
		struct map *map = NULL;
		bool got = false;

		futex_lock(&lock);
		if (n < count) {
			map = table[n].map;
			got = set_get(&map->set);
		}
		futex_unlock(&lock);
		if (!map || got)
			return map;
		set_wait(&map->set);
	}
}

size_t map_count(void)
{
	return count;
}

void map_fork_prepare(void)
{
	futex_lock(&lock);
}

void map_fork_parent(void)
{
	futex_unlock(&lock);
}

void map_fork_child(void (*fn)(struct map *map))
{
	for (size_t i = 0; i < count; i++)
		fn(table[i].map);
	count = 0;
	lock = 0;
}

void map_close_old(struct map *map)
{
	struct set *set = &map->set;

	for (unsigned i = 0; i < SEG_TARGETS; i++) {
		struct store *store = set->targets[i].store;

		if (i == set->current || !store)
			continue;
		/* In this order: a child that is forked now would close it again. */
		set->targets[i].store = NULL;
		lock_drop(set->targets[i].lock);
		set->targets[i].lock = NULL;
		io_close(store);
	}
	set_carry(set, CARRY_NONE);
}

void map_explain(const struct map *map, int err)
{
	const struct flushing *f = &map->set.flush;

	if (*fail_message())
		return;
	if (flush_has_lost(&map->set) && map->set.writers) {
		fail(EIO, "storage failed to make durable what was written (%s), and which bytes these were is not known any more "
		     "(UMMAP_WRITERS): it may have lost them. Take the contents from a copy or make them anew, and end this "
		     "mapping without sync", strerror(f->error));
		return;
	}
	if (flush_has_lost(&map->set)) {
		fail(EIO, "storage failed to make %llu bytes durable that were written and have left memory since (%s): it may "
		     "have lost them, and they cannot be written again; all else is written. Take the contents from a copy or "
		     "make them anew, and end this mapping without sync",
		     (unsigned long long)min_size(f->lost, map->set.size), strerror(f->error));
		return;
	}
	fail(-err, "changes could not be written to storage: %s; they are kept in memory%s", strerror(-err),
	     err == -ENOSPC || err == -EDQUOT ? ", so make space and sync again" : ", so sync again");
}

static int complete_in_order(struct map *map)
{
	struct set *set = &map->set;
	int err = 0;

	futex_lock(&map->sync_lock);
	if (set_in_order(set))
		err = seg_migrate(set, 0, set->segs, set->carry == CARRY_DESCENDING);
	if (!err && set_in_order(set))
		set_carry(set, CARRY_ANY);
	futex_unlock(&map->sync_lock);
	return err;
}

int map_complete(struct map *map, size_t first, size_t last)
{
	if (set_in_order(&map->set))
		return complete_in_order(map);
	return map->set.carry ? seg_migrate(&map->set, first, last, false) : 0;
}

static int sync_segments(struct map *map)
{
	struct set *set = &map->set;
	int err = map_complete(map, 0, set->segs);

	futex_lock(&map->sync_lock);
	if (!err)
		err = writeback_sync(set, 0, set->segs);
	if (!err && set->carry)
		map_close_old(map);
	futex_unlock(&map->sync_lock);
	return err;
}

bool map_write_some(struct map *map, size_t *at, size_t last)
{
	struct set *set = &map->set;
	uint64_t until = sys_now() + PART_MS;
	int err = 0;

	if (set->in_place || set_in_order(set))
		return false;
	last = min_size(last, set->segs);
	do {
		size_t end = set->carry ? min_size(*at + writeback_run(set), last) : last;

		if (set->carry && *at < end)
			err = seg_migrate(set, *at, end, false);
		if (!err)
			err = writeback_some(set, at, end, until);
	} while (!err && *at < last && sys_now() < until);
	if (err)
		writeback_keep_error(set, err);
	return !err && *at < last;
}

int map_sync(struct map *map)
{
	struct set *set = &map->set;
	int err, earlier;

	err = set->in_place ? inplace_sync(set, 0, set->size) : sync_segments(map);
	earlier = writeback_take_error(set);
	err = err ? err : earlier;
	if (err)
		map_explain(map, err);
	return err;
}
