/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Absent -> inactive, before anybody asks. What is loaded together stands in one cluster in the pool, too, as far as that can
 * be had, so that it can appear by one call. Segments are trylocked only, and the lock for taking frames is held for no
 * I/O. Evicts nothing that a fault has not asked to go.
 */
#include "paging/prefetch.h"

#include "paging/evict.h"
#include "paging/segment.h"
#include "memory/freelist.h"

#include <string.h>

_Static_assert(FREELIST_BLOCK == CLUSTER_MAX, "whole pieces find whole huge pages");

/* So many times as many frames as are on a huge page are looked at for one. */
#define TRIES 4

static bool is_wanted(const struct mapping *map, const struct seg *s)
{
	return !seg_has(s, SEG_VALID) && !seg_has(s, SEG_PAGECACHE) && map_reads(map, s);
}

/* Locks absent segments that are read from one backing store: `count` at most, from i on, every `step`th. Returns how many. */
static unsigned lock_absent(struct mapping *map, size_t i, size_t count, size_t step, struct seg **list)
{
	size_t most = min_size(min_size(count, CLUSTER_MAX), max_size(HUGE_PAGE >> map->shift, 1));
	unsigned n = 0;

	for (; n < most; n++, i += step) {
		struct seg *s = map_seg(map, i);

		if (!is_wanted(map, s) || !seg_trylock(s))
			break;
		if (!is_wanted(map, s) || (n && seg_backing(s) != seg_backing(list[0]))) {
			seg_unlock(s);
			break;
		}
		list[n] = s;
	}
	return n;
}

/* Makes frames writable that are sorted: one call for each stretch. Returns for how many. */
static unsigned make_writable(const uint32_t *frames, unsigned n)
{
	unsigned first, end;

	for (first = 0; first < n; first = end) {
		for (end = first + 1; end < n && frame_follows(frames[end - 1], frames[end]); end++)
			;
		if (frame_make_writable(frames[first], end - first) < 0)
			return first;
	}
	return n;
}

/* Whether n of `got` sorted frames are a huge page; then it begins at *first. */
static bool find_block(const uint32_t *frames, unsigned got, unsigned n, unsigned *first)
{
	for (unsigned k = 0; k + n <= got; k++) {
		if (frames[k] % n == 0 && frames[k + n - 1] == frames[k] + n - 1) {
			*first = k;
			return true;
		}
	}
	return false;
}

/* Puts a frame among `got` sorted ones. */
static void sort_in(uint32_t *frames, unsigned got, uint32_t frame)
{
	for (; got > 0 && frames[got - 1] > frame; got--)
		frames[got] = frames[got - 1];
	frames[got] = frame;
}

/* Takes up to n frames, sorted. Where n are a huge page, more are tried for one: remains of others come first, and what is
 * mixed up is sorted so in time. The rest goes to whoever needs single ones. *whole: whether it is a huge page. */
static unsigned gather_frames(struct mapping *map, uint32_t *frames, unsigned n, bool *whole)
{
	bool wanted = n > 1 && frame_block(map_frames(map), map->seg_size, evict_limit(map)) == n;
	unsigned most = wanted ? TRIES * n - 1 : n, got = 0, first = 0;
	uint32_t frame;

	*whole = false;
	while (got < most && !*whole && (frame = evict_take_frame(map, true)) != FRAME_NONE) {
		sort_in(frames, got++, frame);
		*whole = wanted && find_block(frames, got, n, &first);
	}
	for (unsigned k = 0; k < got; k++) {
		if (k < first || k >= first + n)
			evict_return_frame(map, frames[k]);
	}
	got = got - first < n ? got - first : n;
	memmove(frames, frames + first, got * sizeof(*frames));
	return got;
}

/* Where something is changed, clusters do not stay whole: it is written, and leaves, by itself. */
static bool is_changed(const struct mapping *map)
{
	return map_next(map, map->dirty, 0) < map->segs;
}

/* Up to n frames that may be written, in the order in which they stand in the pool; *full: there are no more. */
static unsigned take_frames(struct mapping *map, uint32_t *frames, unsigned n, bool *full)
{
	unsigned got, ok;
	bool whole;

	if (n == 0)
		return 0;
	/* One at a time, so that what one takes is of one cluster. */
	futex_lock(&map->take_lock);
	got = gather_frames(map, frames, n, &whole);
	futex_unlock(&map->take_lock);
	if (whole && frame_is_split(frames[0]) && !is_changed(map))
		frame_collapse(frames[0], n);
	ok = make_writable(frames, got);
	*full = ok < n;
	while (got > ok)
		evict_return_frame(map, frames[--got]);
	return got;
}

/* Requests for absent segments, which are locked then. Returns how many. */
static unsigned prepare_batch(struct mapping *map, size_t i, size_t count, size_t step, struct ummap_io *io, bool *full)
{
	struct seg *list[CLUSTER_MAX];
	uint32_t frames[TRIES * CLUSTER_MAX];
	unsigned locked = lock_absent(map, i, count, step, list), n = take_frames(map, frames, locked, full);

	for (unsigned k = locked; k-- > n;)
		seg_unlock(list[k]);
	for (unsigned k = 0; k < n; k++) {
		list[k]->frame = frames[k];
		seg_request(map, i + k * step, list[k], frames[k], &io[k]);
	}
	return n;
}

/* Loaded, or not: whoever needs one that failed will meet the error himself. */
static void become_inactive(struct mapping *map, size_t i, struct seg *s, int res)
{
	if (res == 0) {
		seg_change(s, 0, SEG_VALID | SEG_INACTIVE | SEG_AHEAD);
		map_mark(map->touched, i);
		cache_deactivate(&map->member, s, INACTIVE_AHEAD);
		add(map->stat.ahead_loads, 1);
	} else {
		evict_return_frame(map, s->frame);
	}
}

/* Loads absent segments, the first of up to `count`. Returns how many. */
static unsigned load_batch(struct mapping *map, size_t first, size_t count, size_t step, bool *full)
{
	struct ummap_io io[CLUSTER_MAX];
	unsigned n = prepare_batch(map, first, count, step, io, full);

	if (n)
		io_run(map->backings[seg_backing(io->owner)].store, io, n, true, &map->stat.io);
	for (unsigned k = 0; k < n; k++)
		become_inactive(map, first + k * step, io[k].owner, io[k].res);
	/* Whoever waits for the first one finds the others with it. */
	for (unsigned k = n; k-- > 0;)
		seg_unlock(map_seg(map, first + k * step));
	return n;
}

bool prefetch(struct mapping *map, size_t first, size_t count, size_t step)
{
	bool full = false;

	while (count > 0 && !full && !map->frozen) {
		unsigned n = load_batch(map, first, count, step, &full), skip = n ? n : 1;

		first += skip * step;
		count -= skip;
	}
	return !full;
}
