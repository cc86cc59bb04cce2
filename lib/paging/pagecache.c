/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Absent -> mapped from the page cache, and back. Such a segment has no frame: its place in the mapped range shows the
 * kernel's pages of the store, read-only. All other code treats it as absent. A store, or a pin, pages it in, and the
 * call that maps the frame replaces the pages, or, where places are watched, the call before it. The kernel may evict
 * its pages, and then loads them again by itself, page by page: correct, but slow; so the background thread checks from
 * time to time. What the kernel cannot load, or finds cut off, raises SIGBUS: then it is paged in, too. Takes the locks
 * of segments; while one is held another is only trylocked.
 */
#include "paging/pagecache.h"

#include "engine/engine.h"

#include <sys/mman.h>

/* Faults cost more than pages that come along. Segments that are mapped together begin at a multiple of their
 * number. */
#define TOGETHER_BYTES ((size_t)16 << 20)
#define TOGETHER_MOST 512
/* Each cluster may be a mapping of the kernel's, of which there are not many. */
#define STRETCHES_MAX 2048
/* ... nor may all mappings of the process have more together. */
#define STRETCHES_OF_ALL 8192
/* How many clusters are looked at in one round. */
#define LOOKS 64

/* Runs of all mappings. */
static _Atomic unsigned all_stretches;

struct run {
	size_t first, last; /* segments [first, last) are locked */
};

static size_t together(const struct mapping *map)
{
	return min_size(max_size(TOGETHER_BYTES >> map->shift, 1), TOGETHER_MOST);
}

/* Whether its state allows it. A segment that still has to migrate is up to date in neither store. */
static bool may_be_mapped(const struct mapping *map, const struct seg *s)
{
	return !seg_has(s, SEG_VALID) && seg_backing(s) == map->current && map_reads(map, s);
}

/* Whether it is mapped from the page cache, or could be and is not. */
static bool is_like(const struct mapping *map, const struct seg *s, bool mapped)
{
	return seg_has(s, SEG_PAGECACHE) == mapped && (mapped || may_be_mapped(map, s));
}

/* Locks segment i if it is in that state and not locked. */
static bool lock_if(struct mapping *map, size_t i, bool mapped)
{
	struct seg *s = map_seg(map, i);

	if (!is_like(map, s, mapped) || !seg_trylock(s))
		return false;
	if (is_like(map, s, mapped))
		return true;
	seg_unlock(s);
	return false;
}

/* The neighbours of segment i, which is locked, that could come along. */
static struct run lock_neighbours(struct mapping *map, size_t i)
{
	size_t n = together(map), begin = i / n * n, end = min_size(begin + n, map->size >> map->shift);
	struct run r = { i, i + 1 };

	while (r.last < end && lock_if(map, r.last, false))
		r.last++;
	while (r.first > begin && lock_if(map, r.first - 1, false))
		r.first--;
	return r;
}

static void unlock(struct mapping *map, const struct run *r)
{
	for (size_t i = r->first; i < r->last; i++)
		seg_unlock(map_seg(map, i));
}

/* Makes a run smaller. */
static void unlock_others(struct mapping *map, struct run *r, size_t i)
{
	unlock(map, &(struct run){ r->first, i });
	unlock(map, &(struct run){ i + 1, r->last });
	*r = (struct run){ i, i + 1 };
}

/* Whether the kernel has the pages of a run; if so, they are mapped at `range`, unless that is NULL. */
static bool show(struct mapping *map, const struct run *r, char *range)
{
	const struct backing *t = &map->backings[map->current];
	size_t len = (r->last - r->first) << map->shift;

	if (io_lend(t->store, range, len, t->offset + ((uint64_t)r->first << map->shift)) != 1)
		return false;
	if (range)
		raw_madvise(range, len, MADV_DONTFORK);
	return true;
}

static void note(struct mapping *map, const struct run *r)
{
	for (size_t i = r->first; i < r->last; i++) {
		struct seg *s = map_seg(map, i);

		map->pagecached += !seg_has(s, SEG_PAGECACHE);
		seg_change(s, 0, SEG_PAGECACHE);
		map_mark(map->touched, i);
	}
	map->stretches++;
	all_stretches++;
}

void pagecache_forget(struct mapping *map)
{
	all_stretches -= atomic_exchange(&map->stretches, 0);
}

/* Whether there may be one run more; a mapping that has too many begins anew. */
static bool has_room(struct mapping *map)
{
	if (map->stretches < STRETCHES_MAX && all_stretches < STRETCHES_OF_ALL)
		return true;
	if (map->stretches && pagecache_unmap(map, 0, map->segs) == 0)
		pagecache_forget(map);
	return all_stretches < STRETCHES_OF_ALL;
}

/* Segment i, locked, and perhaps others with it. One that is mapped already was so by a thread that was faster. */
static bool map_pages_locked(struct mapping *map, size_t i)
{
	struct run one = { i, i + 1 }, r = one;
	bool done;

	/* Asked first, so that what is not in memory costs little. */
	if (!show(map, &one, NULL))
		return false;
	if (!seg_has(map_seg(map, i), SEG_PAGECACHE))
		r = lock_neighbours(map, i);
	done = r.last - r.first > 1 && show(map, &r, map_place(map, r.first));
	if (!done) {
		unlock_others(map, &r, i);
		done = show(map, &one, map_place(map, i));
	}
	if (done)
		note(map, &r);
	unlock_others(map, &r, i);
	return done;
}

bool pagecache_may(const struct mapping *map)
{
	return map->engine->page_cache && !map->shared && !map->in_place && io_lends(map->backings[map->current].store);
}

int pagecache_prepare(const struct mapping *map)
{
	return pagecache_may(map) ? sigsegv_start_bus() : 0;
}

bool pagecache_has(struct mapping *map, size_t first, size_t last)
{
	return last <= map->size >> map->shift && pagecache_may(map) && show(map, &(struct run){ first, last }, NULL);
}

bool pagecache_map(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	bool done = false;

	/* Only where all of it belongs to the mapping, and to this process alone. */
	if (i >= map->size >> map->shift || !pagecache_may(map))
		return false;
	if (!has_room(map))
		return false;
	seg_lock(s);
	if (may_be_mapped(map, s))
		done = map_pages_locked(map, i);
	seg_unlock(s);
	if (done)
		add(map->stat.read_faults, 1);
	return done;
}

/* A segment that is mapped from the page cache, and those behind it that are, too, by one call. */
static int unmap_run(struct mapping *map, size_t i, size_t last)
{
	size_t end = min_size(i + together(map), last);
	struct run r = { i, i + 1 };
	int err = 0;

	seg_lock(map_seg(map, i));
	if (seg_has(map_seg(map, i), SEG_PAGECACHE)) {
		while (r.last < end && lock_if(map, r.last, true))
			r.last++;
		err = engine_reset(map->engine, map_place(map, i), (r.last - i) << map->shift);
		for (size_t k = i; k < r.last && !err; k++) {
			seg_change(map_seg(map, k), SEG_PAGECACHE, 0);
			map->pagecached--;
		}
	}
	unlock(map, &r);
	return err;
}

int pagecache_unmap(struct mapping *map, size_t first, size_t last)
{
	int err = 0;

	if (!map->pagecached)
		return 0;
	for (size_t i = map_next(map, map->touched, first); i < last && !err; i = map_next(map, map->touched, i + 1)) {
		if (seg_has(map_seg(map, i), SEG_PAGECACHE))
			err = unmap_run(map, i, last);
	}
	return err;
}

/* Goes on where the round before stopped. Locks nothing: what it finds may be out of date, but does no harm. */
void pagecache_look(struct mapping *map)
{
	size_t n = together(map), i = map->next_look;

	if (!map->pagecached)
		return;
	for (unsigned looks = 0; looks < LOOKS; looks++) {
		struct run r;

		i = map_next(map, map->touched, i);
		while (i < map->segs && !seg_has(map_seg(map, i), SEG_PAGECACHE))
			i = map_next(map, map->touched, i + 1);
		r = (struct run){ i, i };
		while (r.last < map->segs && r.last - i < n && seg_has(map_seg(map, r.last), SEG_PAGECACHE))
			r.last++;
		if (i == r.last)
			break;
		if (!show(map, &r, NULL))
			pagecache_unmap(map, r.first, r.last);
		i = r.last;
	}
	map->next_look = i < map->segs ? i : 0;
}
