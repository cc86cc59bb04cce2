/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads lists of segments that the application gives; they become inactive, or resident in a node
 * copy and in long runs of a mapping whose faults bring in neighbors. The first segments of a list
 * for which memory has room are taken. They are sorted, so that neighbours are one request, and
 * loaded by a few jobs. Each job loads a part of the list and then goes back into the queue, so
 * that other jobs need not wait for the whole list. A job has a use of the mapping, and ends when
 * another thread freezes the mapping. Takes no locks, and is never on the fault path.
 */
#include "paging/residency/prefetch.h"

#include "base/worker.h"
#include "budget/budget.h"
#include "paging/mapping/shared_copy.h"
#include "paging/residency/evict.h"
#include "paging/residency/neighbors.h"
#include "paging/residency/pagecache.h"
#include "paging/residency/readahead.h"
#include "paging/residency/tiering.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

struct prefetch {
	struct mapping *map;
	size_t size;             /* bytes of this structure */
	size_t most, count;      /* segments of the list: the maximum, and the number */
	bool sorted;             /* whether the list is in ascending order, without repetition */
	_Atomic size_t taken;    /* segments that jobs have taken; may exceed count */
	_Atomic bool ended;      /* whether the jobs load nothing more */
	_Atomic uint32_t users;  /* jobs, and the thread that posts them */
	size_t list[];           /* numbers of segments */
};

struct prefetch *prefetch_open(struct mapping *map, size_t most)
{
	size_t room = map->copy ? copy_prefetch_room(map) :
		      account_prefetch_room(map_account(map), tiering_room(map)) >> map->shift;
	size_t n = min_size(most, room), size = sizeof(struct prefetch) + n * sizeof(size_t);
	struct prefetch *p = sys_map_anonymous(size);

	if (!p)
		return NULL;
	p->map = map;
	p->size = size;
	p->most = n;
	p->sorted = true;
	p->users = 1;
	return p;
}

static void release_list(struct prefetch *p)
{
	if (--p->users > 0)
		return;
	map_account(p->map)->coming -= (p->count - min_size(p->taken, p->count)) << p->map->shift;
	raw_munmap(p, p->size);
}

static int compare(const void *a, const void *b)
{
	size_t i = *(const size_t *)a, k = *(const size_t *)b;

	return i < k ? -1 : i > k;
}

static void sort_list(struct prefetch *p)
{
	size_t n = 0;

	if (p->sorted)
		return;
	qsort(p->list, p->count, sizeof(*p->list), compare);
	for (size_t k = 0; k < p->count; k++) {
		if (n == 0 || p->list[n - 1] != p->list[k])
			p->list[n++] = p->list[k];
	}
	p->count = n;
	p->sorted = true;
}

static bool is_full(struct prefetch *p)
{
	if (p->count < p->most)
		return false;
	sort_list(p);
	return p->most - p->count <= p->most / DUPLICATES_PART;
}

bool prefetch_add(struct prefetch *p, size_t first, size_t last)
{
	if (pagecache_has(p->map, first, last))
		return true;
	for (size_t i = first; i < last; i++) {
		if (p->map->copy ? !copy_lacks(p->map, i) : !readahead_needs_load(p->map, i))
			continue;
		if (is_full(p))
			return false;
		p->sorted = p->sorted && (p->count == 0 || p->list[p->count - 1] < i);
		p->list[p->count++] = i;
	}
	return true;
}

/* Returns how many segments a job loads before it goes back into the queue. */
static size_t part_size(const struct mapping *map)
{
	return neighbors_come(map) ? HUGE_PAGE >> map->shift : MAX_CLUSTER_SEGMENTS;
}

/* Loads n segments. Returns false if there is no room. */
static bool load_list(struct mapping *map, const size_t *list, size_t n)
{
	for (size_t k = 0, loaded; k < n; k += loaded) {
		loaded = neighbors_come(map) ? neighbors_load_listed(map, list + k, n - k) : 0;
		if (loaded)
			continue;
		loaded = min_size(n - k, MAX_CLUSTER_SEGMENTS);
		if (!readahead_load(map, list + k, loaded))
			return false;
	}
	return true;
}

/* Loads n segments of the list from number `at` on. Tries again, because other threads may give
 * back the room that they hold. Returns false if there was no room in any attempt. */
static bool load_segments(struct prefetch *p, size_t at, size_t n)
{
	const size_t *list = p->list + at;

	if (p->map->copy) {
		if (!copy_await_room(p->map, at))
			return false;
		copy_prefetch(p->map, list, n);
		return true;
	}
	for (unsigned tries = 0; tries < MAX_PREFETCH_TRIES && !p->ended; tries++) {
		evict_prepare_readahead(p->map);
		if (load_list(p->map, list, n))
			return true;
		sched_yield();
	}
	return false;
}

/* Loads the next part of the list. Returns false if there is none. */
static bool load_part(struct prefetch *p)
{
	size_t at, n, most = part_size(p->map);

	if (p->ended || map_is_frozen(p->map))
		return false;
	at = atomic_fetch_add(&p->taken, most);
	if (at >= p->count)
		return false;
	n = min_size(p->count - at, most);
	if (!load_segments(p, at, n))
		p->ended = true;
	map_account(p->map)->coming -= n << p->map->shift;
	return true;
}

static void load_job(void *arg, uint64_t none, uint64_t nothing)
{
	struct prefetch *p = arg;
	struct mapping *map = p->map;

	(void)none;
	(void)nothing;
	while (load_part(p)) {
		if (worker_post(load_job, p, 0, 0))
			return;
	}
	release_list(p);
	map_leave(map);
}

void prefetch_start(struct prefetch *p)
{
	struct mapping *map = p->map;

	sort_list(p);
	map_account(map)->coming += p->count << map->shift;
	if (p->count && !map->copy)
		evict_prepare_readahead(map);
	for (size_t k = 0; k < PREFETCH_JOBS && k * part_size(map) < p->count; k++) {
		map_use(map);
		p->users++;
		if (!worker_post(load_job, p, 0, 0)) {
			p->users--;
			map_leave(map);
			break;
		}
	}
	release_list(p);
}
