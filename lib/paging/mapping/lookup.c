/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sorted table of mapped ranges. Writers change it in place under a lock, and increase a sequence
 * number before and after the change. Readers never wait for the lock: they read again if the
 * number has changed. Structures and outgrown tables are never freed, because a reader may still
 * use them.
 */
#include "paging/mapping/lookup.h"

#include "paging/sync/commit.h"

#include "base/log.h"
#include "common/fd_path.h"
#include "common/fork.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>


struct entry {
	_Atomic uintptr_t base, end;
	struct mapping *_Atomic map;
};

static struct entry *_Atomic table;
static _Atomic size_t count;
static size_t capacity;
static _Atomic uint32_t sequence;   /* odd while the table changes */
static _Atomic uint32_t lock;
static struct mapping *free_maps;
/* The bounds of all addresses that a mapping has ever had. */
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest;

struct mapping *map_alloc(void)
{
	struct mapping *map;

	futex_lock(&lock);
	map = free_maps;
	if (map)
		free_maps = map->life.next_free;
	futex_unlock(&lock);
	if (!map)
		return calloc(1, sizeof(*map));
	/* A late look-up may change `users`, which is 0 otherwise. */
	memset(&map->range, 0, sizeof(*map) - offsetof(struct mapping, range));
	return map;
}

void map_free(struct mapping *map)
{
	futex_lock(&lock);
	map->life.next_free = free_maps;
	free_maps = map;
	futex_unlock(&lock);
}

/* Copies a URI, and replaces the path of a descriptor by that of its file. */
static void copy_readable(const char *uri, char *text, size_t room)
{
	const char *link = strstr(uri, FD_FOLDER), *rest = uri;
	char name[sizeof(FD_FOLDER) + 16], path[PATH_MAX];
	ssize_t len = -1;

	if (link) {
		rest = link + strlen(FD_FOLDER);
		rest += strspn(rest, "0123456789");
		if ((size_t)(rest - link) < sizeof(name)) {
			snprintf(name, sizeof(name), "%.*s", (int)(rest - link), link);
			len = readlink(name, path, sizeof(path));
		}
	}
	if (len > 0)
		snprintf(text, room, "%.*s%.*s%s", (int)(link - uri), uri, (int)len, path, rest);
	else
		snprintf(text, room, "%s", uri);
}

void map_name(struct mapping *map, const char *uri, int fd)
{
	char text[PATH_MAX], self[FD_PATH_BYTES];
	size_t len;

	if (fd >= 0)
		fd_path(self, fd);
	copy_readable(fd >= 0 ? self : uri, text, sizeof(text));
	len = strlen(text);
	/* The path of a driver says more than its keys. */
	if (len >= REGISTRY_NAME_LEN && fd < 0)
		len = strcspn(text, "?");
	text[len] = '\0';
	if (len < REGISTRY_NAME_LEN)
		memcpy(map->name, text, len + 1);
	else
		snprintf(map->name, sizeof(map->name), "...%s",
			 text + len - (REGISTRY_NAME_LEN - 4));
}

static void copy_entry(struct entry *to, const struct entry *from)
{
	to->base = from->base;
	to->end = from->end;
	to->map = from->map;
}

/* Under the lock. Readers may still use the old table. */
static int grow_table(void)
{
	size_t more = capacity ? capacity * 2 : 256;
	struct entry *bigger = sys_map_anonymous(more * sizeof(*bigger));

	if (!bigger)
		return fail(ENOMEM, "cannot list the mapping: no memory for a table of %zu "
			    "mappings", more);
	for (size_t i = 0; i < count; i++)
		copy_entry(&bigger[i], &table[i]);
	table = bigger;
	capacity = more;
	return 0;
}

/* Under the lock, while the sequence number is odd. */
static void insert_entry(struct mapping *map)
{
	uintptr_t base = (uintptr_t)map->range;
	struct entry *t = table;
	size_t i;

	for (i = count; i > 0 && t[i - 1].base > base; i--)
		copy_entry(&t[i], &t[i - 1]);
	t[i].base = base;
	t[i].end = base + round_up(map->size, sys_page());
	t[i].map = map;
	count++;
	lowest = t[i].base < lowest ? t[i].base : lowest;
	highest = t[i].end > highest ? t[i].end : highest;
}

static void remove_entry(struct mapping *map)
{
	struct entry *t = table;
	size_t i = 0;

	while (t[i].map != map)
		i++;
	for (count--; i < count; i++)
		copy_entry(&t[i], &t[i + 1]);
}

int map_insert(struct mapping *map)
{
	int err = 0;

	futex_lock(&lock);
	sequence++;
	if (count == capacity)
		err = grow_table();
	if (!err)
		insert_entry(map);
	sequence++;
	futex_unlock(&lock);
	return err;
}

void map_remove(struct mapping *map)
{
	futex_lock(&lock);
	sequence++;
	remove_entry(map);
	sequence++;
	futex_unlock(&lock);
}

void map_move(struct mapping *map)
{
	futex_lock(&lock);
	sequence++;
	remove_entry(map);
	insert_entry(map);
	sequence++;
	futex_unlock(&lock);
}

/* The first mapping that overlaps [addr, addr + len); NULL: none. */
static struct mapping *find_overlap(uintptr_t addr, size_t len)
{
	/* The count is read before the table: a later table has room for at least this count. */
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

struct mapping *map_look_up(const void *addr, bool wait)
{
	for (;;) {
		uint32_t before = sequence;
		struct mapping *map;
		bool entered;

		if (before & 1) {
			sched_yield();
			continue;
		}
		map = find_overlap((uintptr_t)addr, 1);
		entered = map && map_enter(map);
		if (sequence != before) {
			if (entered)
				map_leave(map);
			continue;
		}
		if (!map || entered)
			return map;
		if (!wait)
			return NULL;
		map_wait(map);
	}
}

bool map_meets(const void *addr, size_t len)
{
	uintptr_t from = (uintptr_t)addr, low = lowest;

	/* Most callers pass addresses that were never mapped. */
	if (from >= highest || (from < low && len <= low - from))
		return false;
	for (;;) {
		uint32_t before = sequence;
		bool met = !(before & 1) && find_overlap(from, len);

		if (!(before & 1) && sequence == before)
			return met;
		sched_yield();
	}
}

struct mapping *map_find_alone(const void *base)
{
	for (;;) {
		struct mapping *map = map_find(base);

		if (!map)
			return NULL;
		if (map->range == base)
			commit_await(map);
		if (map->range == base && map_freeze(map))
			return map;
		map_leave(map);
		if (map->range != base)
			return NULL;
		map_wait(map);
	}
}

struct mapping *map_nth(size_t n)
{
	for (;;) {
		struct mapping *map = NULL;
		bool entered = false;

		futex_lock(&lock);
		if (n < count) {
			map = table[n].map;
			entered = map_enter(map);
		}
		futex_unlock(&lock);
		if (!map || entered)
			return map;
		map_wait(map);
	}
}

__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_MAPPINGS, &lock, NULL, NULL);
}

void map_fork_child(void (*fn)(struct mapping *map))
{
	for (size_t i = 0; i < count; i++)
		fn(table[i].map);
	count = 0;
}
