/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads segments ahead of faults: they become inactive before an access. The only state is the
 * runs that are followed: faults at equal distances, forward or backward, several runs in a
 * mapping at a time. The segments that all mappings of a budget have read ahead take a bounded
 * part of it, which is smaller if evicted segments are accessed again. A mapping whose segments
 * are reclaimed unused reads less far. Readahead never evicts resident segments. Segments that are
 * loaded together are in one cluster in the pool, too, if possible, so that one call can map them.
 *
 * Locks: each mapping has one lock for its runs, which is only tried, so that a second thread at
 * the same time does not read ahead. Locks of segments are only tried, too. The lock for taking
 * frames is not held during I/O.
 */
#include "paging/residency/readahead.h"

#include "base/config.h"
#include "base/worker.h"
#include "budget/budget.h"
#include "paging/residency/evict.h"
#include "paging/residency/pagecache.h"
#include "paging/residency/recycle.h"
#include "paging/residency/tiering.h"
#include "paging/fault/segment.h"

#include <stdlib.h>
#include <string.h>
#include <ummap.h>

_Static_assert(ARENA_MAX_TRACKED == MAX_CLUSTER_SEGMENTS,
	       "whole clusters find whole huge pages");

/* ---- Loading ---- */

static bool is_wanted(const struct mapping *map, const struct seg *s)
{
	return !seg_has(s, SEG_VALID) && !seg_has(s, SEG_PAGECACHE) && map_reads(map, s);
}

/* Segments to be loaded, in the order of their addresses: those of a list, or every `step`th from
 * `first` on. */
struct wanted {
	const size_t *list;      /* NULL: there is none */
	size_t first, step;
};

static size_t nth_segment(const struct wanted *w, size_t k)
{
	return w->list ? w->list[k] : w->first + k * w->step;
}

/* Locks absent segments that are read from one backing store: the first of `count` from the at-th
 * on. Returns how many. */
static unsigned lock_absent(struct mapping *map, const struct wanted *w, size_t at, size_t count,
	struct seg **list)
{
	size_t most = min_size(min_size(count, MAX_CLUSTER_SEGMENTS),
			       max_size(HUGE_PAGE >> map->shift, 1));
	unsigned n = 0;

	for (; n < most; n++) {
		struct seg *s = map_seg(map, nth_segment(w, at + n));

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

/* Makes sorted frames writable, with one call for adjacent ones. Returns how many are writable. */
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

/* Whether n of `got` sorted frames are a huge page. *first: the place of its first frame. */
static bool find_huge_page(const uint32_t *frames, unsigned got, unsigned n, unsigned *first)
{
	for (unsigned k = 0; k + n <= got; k++) {
		if (frames[k] % n == 0 && frames[k + n - 1] == frames[k] + n - 1) {
			*first = k;
			return true;
		}
	}
	return false;
}

/* Inserts a frame into `got` sorted ones. */
static void insert_frame(uint32_t *frames, unsigned got, uint32_t frame)
{
	for (; got > 0 && frames[got - 1] > frame; got--)
		frames[got] = frames[got - 1];
	frames[got] = frame;
}

/* Takes a huge page of n frames that is free as a whole, if the account has room for it. */
static bool take_whole_page(struct mapping *map, uint32_t *frames, unsigned n)
{
	uint32_t first;

	if (!account_charge(map_account(map), n * map->seg_size))
		return false;
	first = frame_take_whole(map->frames, map_places(map));
	if (first == FRAME_NONE) {
		account_refund(map_account(map), n * map->seg_size);
		return false;
	}
	for (unsigned k = 0; k < n; k++)
		frames[k] = first + k;
	return true;
}

/* Takes up to n sorted frames. If n frames are a huge page, more are tried to find a whole one:
 * remains of other huge pages come first, so that mixed frames become sorted in time. Frames that
 * are left over serve requests for single frames. *whole: whether the frames are a huge page. */
static unsigned take_sorted_frames(struct mapping *map, uint32_t *frames, unsigned n, bool *whole)
{
	size_t limit = budget_frame_limit(map->member.least);
	bool wanted = n > 1 && frame_block(map->frames, limit) == n;
	unsigned most = wanted ? HUGE_PAGE_SEARCH_FACTOR * n - 1 : n, got = 0, first = 0;
	uint32_t frame;

	*whole = wanted && take_whole_page(map, frames, n);
	if (*whole)
		return n;
	while (got < most && !*whole && (frame = evict_take_frame(map, true)) != FRAME_NONE) {
		insert_frame(frames, got++, frame);
		*whole = wanted && find_huge_page(frames, got, n, &first);
	}
	for (unsigned k = 0; k < got; k++) {
		if (k < first || k >= first + n)
			evict_return_frame(map, frames[k]);
	}
	got = got - first < n ? got - first : n;
	memmove(frames, frames + first, got * sizeof(*frames));
	return got;
}

/* Whether a segment may be dirty. Clusters do not stay whole then: a dirty segment is written, and
 * leaves, by itself. */
static bool has_dirty(const struct mapping *map)
{
	return map_next_dirty(map, 0) < map->segs;
}

/* Takes up to n writable frames, in the order of their pool addresses. *full: there are no more. */
static unsigned take_frames(struct mapping *map, uint32_t *frames, unsigned n, bool *full)
{
	unsigned got, ok;
	bool whole;

	if (n == 0)
		return 0;
	/* One thread at a time, so that it gets the frames of one cluster. */
	futex_lock(&map->residency.take_lock);
	got = take_sorted_frames(map, frames, n, &whole);
	futex_unlock(&map->residency.take_lock);
	if (whole && frame_is_split(frames[0]) && !has_dirty(map))
		frame_collapse(frames[0], n);
	ok = make_writable(frames, got);
	*full = ok < n;
	while (got > ok)
		evict_return_frame(map, frames[--got]);
	return got;
}

/* Locks absent segments and gives them frames. Returns how many. *requests: how many of them are
 * read from the store. */
static unsigned prepare_batch(struct mapping *map, const struct wanted *w, size_t at, size_t count,
	struct seg **list, struct ummap_io *io, unsigned *requests, bool *full)
{
	uint32_t frames[HUGE_PAGE_SEARCH_FACTOR * MAX_CLUSTER_SEGMENTS];
	unsigned locked = lock_absent(map, w, at, count, list);
	unsigned n = take_frames(map, frames, locked, full);

	for (unsigned k = locked; k-- > n;)
		seg_unlock(list[k]);
	*requests = 0;
	for (unsigned k = 0; k < n; k++) {
		recycle_note_load(map, list[k]);
		tiering_set_frame(map, list[k], frames[k]);
		*requests += seg_request(map, nth_segment(w, at + k), list[k],
					 frame_addr(frames[k]), frame_use_blank(frames[k]),
					 &io[*requests]);
	}
	return n;
}

/* Ends the load of a segment. If it has failed, a fault on the segment will get the error
 * itself. */
static void end_load(struct mapping *map, size_t i, struct seg *s, int res)
{
	if (res == 0) {
		seg_change(s, 0, SEG_VALID | SEG_INACTIVE | SEG_AHEAD);
		map_touch(map, i);
		cache_deactivate(&map->member, s, INACTIVE_AHEAD);
		add(map->stat.readahead_loads, 1);
	} else {
		evict_return_frame(map, s->frame);
	}
}

/* Loads absent segments: the first of up to `count` from the at-th on. Returns how many. */
static unsigned load_batch(struct mapping *map, const struct wanted *w, size_t at, size_t count,
	bool *full)
{
	struct seg *list[MAX_CLUSTER_SEGMENTS];
	struct ummap_io io[MAX_CLUSTER_SEGMENTS], *next = io;
	unsigned requests, n = prepare_batch(map, w, at, count, list, io, &requests, full);

	if (requests)
		io_run(map->backings[seg_backing(list[0])].store, io, requests, true,
		       &map->stat.io);
	for (unsigned k = 0; k < n; k++) {
		bool read = next < io + requests && next->owner == list[k];

		end_load(map, nth_segment(w, at + k), list[k], read ? next->res : 0);
		next += read;
	}
	/* The first segment is unlocked last: a thread that waits for it then finds the others,
	 * too. */
	for (unsigned k = n; k-- > 0;)
		seg_unlock(list[k]);
	return n;
}

/* Loads the absent ones of `count` segments until there is no room without evicting resident ones.
 * Returns false in that case. */
static bool load_wanted(struct mapping *map, const struct wanted *w, size_t count)
{
	bool full = false;

	for (size_t at = 0; at < count && !full && !map_is_frozen(map);) {
		unsigned n = load_batch(map, w, at, count - at, &full);

		at += n ? n : 1;
	}
	return !full;
}

static void load_range(struct mapping *map, size_t first, size_t count, size_t step)
{
	load_wanted(map, &(struct wanted){ .first = first, .step = step }, count);
}

bool readahead_needs_load(const struct mapping *map, size_t i)
{
	return is_wanted(map, map_seg(map, i));
}

bool readahead_load(struct mapping *map, const size_t *list, size_t n)
{
	return load_wanted(map, &(struct wanted){ .list = list }, n);
}

/* ---- How far ---- */

static size_t job_segs(const struct mapping *map)
{
	return max_size(READAHEAD_JOB_BYTES >> map->shift, 1);
}

static void load_job(void *arg, uint64_t first, uint64_t how);

/* Posts a job that loads `count` segments from first on, every step-th. The caller and the job have
 * a use of the mapping. */
static void post_job(struct mapping *map, size_t first, size_t count, size_t step)
{
	map_use(map);
	if (worker_post(load_job, map, first, (uint64_t)count << 32 | step))
		return;
	map_account(map)->coming -= count << map->shift;
	map_leave(map);
}

/* Loads the first segments of a job, and first posts the others as another job: the thread of a
 * fault posts one job only, so that its own read is not behind a whole window of others. Jobs of
 * neighbours end at multiples of their size, so that they load whole clusters. */
static void load_job(void *arg, uint64_t first, uint64_t how)
{
	struct mapping *map = arg;
	size_t count = how >> 32, step = (uint32_t)how, most = job_segs(map);
	size_t n = min_size(count, step == 1 ? most - first % most : most);

	if (count > n)
		post_job(map, first + n * step, count - n, step);
	/* Segments that can be mapped from the page cache need no frame. */
	if (step > 1 || !pagecache_has(map, first, first + n))
		load_range(map, first, n, step);
	map_account(map)->coming -= n << map->shift;
	map_leave(map);
}

static void post_loads(struct mapping *map, size_t first, size_t count, size_t step)
{
	map_account(map)->coming += count << map->shift;
	post_job(map, first, count, step);
}

void readahead_want(struct mapping *map, size_t first, size_t last)
{
	last = min_size(last, map->segs);
	if (first < last)
		post_loads(map, first, last - first, 1);
}

/* Returns how many steps of a run have been read ahead from its last fault on. */
static long steps_ahead(const struct stream *r)
{
	return r->stride ? ((long)r->until - (long)r->last) / r->stride : 0;
}

static bool is_continued(const struct stream *r, size_t i)
{
	long d = (long)i - (long)r->last, steps;

	if (!r->used || !r->stride || d % r->stride != 0)
		return false;
	steps = d / r->stride;
	return steps >= 1 && (steps == 1 || steps <= steps_ahead(r));
}

/* Returns the run that a fault continues, else the nearest one of which it may be the second
 * fault, else a new one. NULL: it is the last fault of a run again. */
static struct stream *find_run(struct mapping *map, size_t i)
{
	struct stream *oldest = map->residency.streams, *near = NULL;
	long best = MAX_STRIDE_SEGMENTS + 1;

	for (unsigned k = 0; k < MAX_STREAMS; k++) {
		struct stream *r = &map->residency.streams[k];
		long d = labs((long)i - (long)r->last);

		if (r->used && d == 0)
			return NULL;
		if (is_continued(r, i))
			return r;
		if (r->seen == 1 && d < best) {
			best = d;
			near = r;
		}
		if (r->used < oldest->used)
			oldest = r;
	}
	if (near) {
		near->stride = (long)i - (long)near->last;
		near->until = near->last;
		return near;
	}
	*oldest = (struct stream){ .last = i, .until = i, .began = i,
		.stride = map->residency.advice == UMMAP_ADV_SEQUENTIAL };
	return oldest;
}

static bool is_run(const struct mapping *map, const struct stream *r)
{
	if (r->stride == 1 && map->residency.advice == UMMAP_ADV_SEQUENTIAL)
		return true;
	return r->seen >= (r->stride == 1 ? MIN_ADJACENT_FAULTS : MIN_STRIDE_FAULTS);
}

/* Returns how many segments may be read ahead now, for all runs that share the budget. */
static size_t count_room(const struct mapping *map)
{
	return account_readahead_room(map_account(map), tiering_room(map)) >> map->shift;
}

static bool is_remote(const struct mapping *map)
{
	return io_is_remote(map->backings[map->current].store);
}

/* Returns how far one run may be read ahead, in segments, if none of them are reclaimed unused. */
static size_t max_window(const struct mapping *map)
{
	size_t most = is_remote(map) ? config.remote_readahead : config.readahead;
	size_t part = account_readahead_window(map_account(map), tiering_room(map));

	return min_size(max_size(most >> map->shift, MIN_WINDOW_SEGMENTS), part >> map->shift);
}

static size_t current_window(const struct mapping *map)
{
	size_t most = max_window(map), lost = map->residency.ahead_lost;

	return min_size(most, most > lost + MIN_WINDOW_SEGMENTS ? most - lost :
			      MIN_WINDOW_SEGMENTS);
}

void readahead_note_use(struct mapping *map)
{
	size_t lost = map->residency.ahead_lost;

	/* A change by another thread at the same time may be lost, which does no harm. */
	if (lost)
		map->residency.ahead_lost = lost - 1;
	account_restore_readahead(map_account(map), map->seg_size);
}

void readahead_note_pressure(struct mapping *map)
{
	account_cut_readahead(map_account(map), ROOM_CUT_PER_WASTE * map->seg_size);
}

void readahead_note_waste(struct mapping *map)
{
	map->residency.ahead_lost = min_size(map->residency.ahead_lost + WINDOW_CUT_PER_WASTE,
					     max_window(map));
	readahead_note_pressure(map);
	add(map->stat.readahead_waste, 1);
}

/* The first window of a run. If a program has announced that it reads in order, the whole window of
 * a remote store is read at once: each smaller one before it would cost the time of an answer. */
static size_t first_window(const struct mapping *map, size_t most)
{
	bool whole = is_remote(map) && map->residency.advice == UMMAP_ADV_SEQUENTIAL;

	return whole ? most : MIN_WINDOW_SEGMENTS;
}

/* Enlarges the window of a run. The steps (*from, *to] from its last fault on are to be loaded
 * now. */
static void enlarge_window(const struct mapping *map, struct stream *r, long *from, long *to)
{
	size_t most = current_window(map);
	size_t growth = is_remote(map) ? REMOTE_WINDOW_GROWTH : WINDOW_GROWTH;

	*from = steps_ahead(r) > 0 ? steps_ahead(r) : 0;
	r->window = min_size(r->window ? r->window * growth : first_window(map, most), most);
	*to = (long)min_size(r->window, (size_t)*from + count_room(map));
	/* Storage is kept busy, but with few small requests: if other runs have taken the room,
	 * this run waits for more. */
	if (*to - *from < (long)min_size(job_segs(map), r->window / 2))
		*to = *from;
}

/* Returns the last step up to `to` that ends a job; or `from`, if there is none, so that nothing
 * is loaded yet. */
static long end_at_job(const struct mapping *map, size_t i, long from, long to)
{
	size_t job = job_segs(map), end = i + (size_t)to + 1;
	long last = (long)(end - end % job - i) - 1;

	if (end >= map->segs)
		return to;
	return last > from ? last : from;
}

/* A fault that has overtaken readahead loads the rest of its cluster itself, because a single
 * segment would leave a hole in it. */
static void catch_up(struct mapping *map, size_t i)
{
	size_t cluster = map_cluster_size(map);

	if (cluster > 1 && !seg_has(map_seg(map, i), SEG_VALID))
		load_range(map, i, min_size(cluster - i % cluster, map->segs - i), 1);
}

/* Loads the steps (from, to] of a run from segment i on. */
static void post_steps(struct mapping *map, size_t i, long stride, long from, long to)
{
	long first = (long)i + (stride > 0 ? from + 1 : to) * stride;

	if (to > from)
		post_loads(map, (size_t)first, (size_t)(to - from), (size_t)labs(stride));
}

bool readahead_is_wanted(const struct mapping *map)
{
	return config.readahead && map->residency.advice != UMMAP_ADV_RANDOM;
}

/* Reads ahead if segment i continues a run. Returns the number of segments in a cluster of that
 * run; 0: unknown. *far: whether the run has left many segments behind. */
static size_t follow_run(struct mapping *map, size_t i, bool *far)
{
	bool in_jobs = false, overtaken = false;
	long from = 0, to = 0, stride = 0, end;
	struct stream *r;

	if (!readahead_is_wanted(map))
		return 1;
	if (!futex_trylock(&map->residency.stream_lock))
		return 0;
	r = find_run(map, i);
	if (r) {
		r->last = i;
		r->seen += r->seen < MIN_STRIDE_FAULTS;
		r->used = ++map->residency.stream_clock;
		stride = r->stride;
	}
	if (stride && is_run(map, r)) {
		in_jobs = stride == 1 && r->window >= job_segs(map);
		*far = recycle_is_far(map, r, i);
		overtaken = in_jobs && i <= r->until;
		enlarge_window(map, r, &from, &to);
		/* The run ends with the mapping. */
		end = stride > 0 ? ((long)map->segs - 1 - (long)i) / stride : (long)i / -stride;
		to = to < end ? to : end;
		to = in_jobs ? end_at_job(map, i, from, to) : to;
		if (to > from)
			r->until = (size_t)((long)i + to * stride);
	}
	futex_unlock(&map->residency.stream_lock);
	post_steps(map, i, stride, from, to);
	if (overtaken)
		catch_up(map, i);
	if (!r)
		return 0;
	return in_jobs ? map_cluster_size(map) : 1;
}

void readahead_fault(struct mapping *map, size_t i)
{
	bool far = false;
	size_t cluster = follow_run(map, i, &far);

	if (cluster && map->residency.advice == UMMAP_ADV_SEQUENTIAL)
		recycle_drop_behind(map, i, cluster, true);
	else if (cluster && far && recycle_is_wanted(map))
		recycle_drop_behind(map, i - (RECYCLE_DISTANCE_BYTES >> map->shift), cluster,
				    false);
}
