/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list is an array sorted by addresses. `lock` protects it; no thread holds the lock during the
 * program's own system calls. System calls of the program search the array without the lock, and
 * search again if it changed meanwhile. The array moves when it grows, and no array is unmapped,
 * because a thread may still search it.
 */
#include "umrun/list.h"

#include "umrun/next_calls.h"

/* A region in the list. Threads compare the atomic fields without the lock. */
struct entry {
	_Atomic uintptr_t first, end;  /* range of addresses */
	_Atomic dev_t dev;
	_Atomic ino_t ino;
	struct region *region;         /* under the lock only */
};

_Atomic unsigned region_count, region_file_count, region_private_count;
_Atomic bool region_kernel_can_access = true;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static _Thread_local bool has_lock;
static struct entry *_Atomic list;
static size_t list_room;
static _Atomic unsigned list_version;  /* odd while the array changes */

void list_lock_write(void)
{
	pthread_rwlock_wrlock(&lock);
	has_lock = true;
}

void list_lock_read(void)
{
	pthread_rwlock_rdlock(&lock);
	has_lock = true;
}

void list_unlock(void)
{
	has_lock = false;
	pthread_rwlock_unlock(&lock);
}

bool list_is_locked_here(void)
{
	return has_lock;
}

void list_begin_child(void)
{
	pthread_rwlock_init(&lock, NULL);
	has_lock = false;
}

/* The number of regions that end at or below the address. */
static size_t count_below(const struct entry *entries, size_t count, uintptr_t at)
{
	size_t low = 0;

	while (low < count) {
		size_t middle = low + (count - low) / 2;

		if (entries[middle].end <= at)
			low = middle + 1;
		else
			count = middle;
	}
	return low;
}

static uintptr_t end_of(uintptr_t at, size_t len)
{
	return len < UINTPTR_MAX - at ? at + len : UINTPTR_MAX;
}

/* ---- Searches with the lock ---- */

static size_t place_of(const void *addr)
{
	return count_below(list, region_file_count, (uintptr_t)addr);
}

struct region *list_at(size_t i)
{
	return i < region_file_count ? list[i].region : NULL;
}

static struct region *find_from(size_t i, const void *addr, size_t len)
{
	struct region *r = list_at(i);

	return r && (uintptr_t)r->addr < end_of((uintptr_t)addr, len) ? r : NULL;
}

struct region *list_find(const void *addr, size_t len)
{
	return find_from(place_of(addr), addr, len);
}

struct region *list_find_next(const struct region *r, const void *addr, size_t len)
{
	return find_from(place_of(r->addr) + 1, addr, len);
}

struct region *list_find_of_file(const struct region *r, struct file_id file)
{
	size_t i = r ? place_of(r->addr) + 1 : 0;

	while (i < region_file_count && !is_same_file(list[i].region->file, file))
		i++;
	return list_at(i);
}

/* ---- Searches without the lock ---- */

/* Returns the version of the array, once it does not change. */
static unsigned begin_search(void)
{
	unsigned version;

	while ((version = list_version) % 2)
		sched_yield();
	return version;
}

/* Whether the array was the same throughout the search. */
static bool is_unchanged(unsigned version)
{
	atomic_thread_fence(memory_order_acquire);
	return list_version == version;
}

bool list_has_range(const void *addr, size_t len)
{
	uintptr_t at = (uintptr_t)addr;
	unsigned version;
	bool has;

	do {
		version = begin_search();
		/* The count comes first: the array has at least that many. */
		size_t count = region_file_count;
		const struct entry *entries = list;
		size_t i = count_below(entries, count, at);

		has = i < count && entries[i].first < end_of(at, len);
	} while (!is_unchanged(version));
	return has;
}

bool list_has_file(struct file_id file)
{
	unsigned version;
	bool has;

	do {
		version = begin_search();
		size_t count = region_file_count;
		const struct entry *entries = list;

		has = false;
		for (size_t i = 0; i < count && !has; i++)
			has = entries[i].ino == file.ino && entries[i].dev == file.dev;
	} while (!is_unchanged(version));
	return has;
}

/* ---- Changes ---- */

static void copy_entry(struct entry *to, const struct entry *from)
{
	to->first = from->first;
	to->end = from->end;
	to->dev = from->dev;
	to->ino = from->ino;
	to->region = from->region;
}

bool list_reserve(void)
{
	size_t room = list_room ? 2 * list_room : page_bytes() / sizeof(struct entry);
	struct entry *more;

	if (region_file_count < list_room)
		return true;
	more = map_private(room * sizeof(*more));
	if (more == MAP_FAILED)
		return false;
	for (size_t i = 0; i < region_file_count; i++)
		copy_entry(&more[i], &list[i]);
	list = more;
	list_room = room;
	return true;
}

void list_insert(struct region *r)
{
	uintptr_t at = (uintptr_t)r->addr;
	const struct entry entry = { at, at + r->len, r->file.dev, r->file.ino, r };
	size_t place = place_of(r->addr);

	list_version++;
	for (size_t i = region_file_count; i > place; i--)
		copy_entry(&list[i], &list[i - 1]);
	copy_entry(&list[place], &entry);
	region_file_count++;
	list_version++;
	region_private_count += r->is_private;
	region_count++;
}

void list_remove(const struct region *r)
{
	size_t place = place_of(r->addr);

	list_version++;
	region_file_count--;
	for (size_t i = place; i < region_file_count; i++)
		copy_entry(&list[i], &list[i + 1]);
	list_version++;
	region_private_count -= r->is_private;
	region_count--;
}
