/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Read-ahead puts segments inactive, where a fault finds them: it needs no state of its own but the runs
 * that it follows: faults at equal distances, forward or backward. Several runs of a mapping are followed at a
 * time. Decides how far: what all mappings of a budget have ahead is a part of it, which is smaller where what is in use
 * has to come back, and a mapping that loses what it read reads less; never evicts what is in use. One lock a mapping,
 * only ever trylocked: whoever comes second goes without.
 */
#include "paging/ahead.h"

#include "base/config.h"
#include "memory/budget.h"
#include "paging/prefetch.h"
#include "paging/segment.h"
#include "base/worker.h"

#include <stdlib.h>
#include <ummap.h>

/* A run begins with so many segments, and one job loads about so many bytes. */
#define WINDOW_MIN 2
#define JOB_BYTES ((size_t)2 << 20)
/* How far behind a fault segments are let go of in a sequential scan; or clusters, where these are what comes. */
#define BEHIND_FIRST 2
#define BEHIND_LAST 4
/* Parts of the budget, its group's or the process's, that may be taken by what was read ahead and not asked for yet: of
 * one run; and of all together, where what is in use needs the rest, and where it does not. */
#define WINDOW_PART 8
#define AHEAD_PART 8
#define AHEAD_MOST_PART 2
/* A segment that was lost unused takes back of a run's window what so many that were used have given; and of what all
 * runs have together more, as does one that was in use, had to leave and came back: where memory is enough, none does. */
#define WASTE_WEIGHT 2
#define SHORT_WEIGHT 16
/* Two faults that are farther apart than this many segments are not taken for the begin of a run. */
#define STRIDE_MAX 256
/* Faults in a row that make a run: neighbours soon, for others it takes one more. */
#define SEEN_NEXT 2
#define SEEN_STRIDE 3

static size_t job_segs(const struct mapping *map)
{
	return max_size(JOB_BYTES >> map->shift, 1);
}

static void load_job(void *arg, uint64_t first, uint64_t how)
{
	struct mapping *map = arg;

	prefetch(map, first, how >> 32, (size_t)(uint32_t)how);
	map_account(map)->coming -= (how >> 32) << map->shift;
	map_leave(map);
}

/* Loads `count` segments from first on, every `step`th, if neighbours, by jobs that end where the next one could begin:
 * they are clusters of the mapped range. The caller uses the mapping; so does each job. */
static void post(struct mapping *map, size_t first, size_t count, size_t step)
{
	size_t most = job_segs(map);

	for (size_t n; count > 0; first += n * step, count -= n) {
		n = min_size(count, step == 1 ? most - first % most : most);
		map->users++;
		map_account(map)->coming += n << map->shift;
		if (!worker_post(load_job, map, first, (uint64_t)n << 32 | step)) {
			map_account(map)->coming -= n << map->shift;
			map_leave(map);
			return;
		}
	}
}

void ahead_want(struct mapping *map, size_t first, size_t last)
{
	last = min_size(last, map->segs);
	if (first < last)
		post(map, first, last - first, 1);
}

/* How many steps a run has been read ahead from its last fault on. */
static long lead(const struct stream *r)
{
	return r->stride ? ((long)r->until - (long)r->last) / r->stride : 0;
}

static bool goes_on(const struct stream *r, size_t i)
{
	long d = (long)i - (long)r->last, steps;

	if (!r->used || !r->stride || d % r->stride != 0)
		return false;
	steps = d / r->stride;
	return steps >= 1 && (steps == 1 || steps <= lead(r));
}

/* The run that a fault continues, else the nearest that it may be the second of, else a new one. NULL: it is where
 * a run stands already. */
static struct stream *find(struct mapping *map, size_t i)
{
	struct stream *oldest = map->streams, *near = NULL;
	long best = STRIDE_MAX + 1;

	for (struct stream *r = map->streams; r < map->streams + STREAMS; r++) {
		long d = labs((long)i - (long)r->last);

		if (r->used && d == 0)
			return NULL;
		if (goes_on(r, i))
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
	*oldest = (struct stream){ .last = i, .until = i, .stride = map->advice == UMMAP_ADV_SEQUENTIAL };
	return oldest;
}

static bool is_run(const struct mapping *map, const struct stream *r)
{
	if (r->stride == 1 && map->advice == UMMAP_ADV_SEQUENTIAL)
		return true;
	return r->seen >= (r->stride == 1 ? SEEN_NEXT : SEEN_STRIDE);
}

static size_t budget(const struct mapping *map)
{
	return min_size(budget_bytes(), map_account(map)->most);
}

/* Segments that may be read ahead now: as many as all runs that share the budget have left. */
static size_t room(const struct mapping *map)
{
	const struct account *account = map_account(map);
	size_t most = budget(map) / AHEAD_MOST_PART, least = budget(map) / AHEAD_PART, less = account->ahead_less;
	size_t all = most > less + least ? most - less : least, taken = account->ahead + account->coming;

	return all > taken ? (all - taken) >> map->shift : 0;
}

/* How far one run may be read ahead, in segments, as long as nothing is lost. */
static size_t window_most(const struct mapping *map)
{
	return min_size(max_size(config.readahead >> map->shift, WINDOW_MIN), (budget(map) / WINDOW_PART) >> map->shift);
}

static size_t window_now(const struct mapping *map)
{
	size_t most = window_most(map), lost = map->ahead_lost;

	return min_size(most, most > lost + WINDOW_MIN ? most - lost : WINDOW_MIN);
}

/* Counts down, by n or as far as it goes: to miss some that another thread counts is no harm. */
static void relax(_Atomic size_t *counter, size_t n)
{
	size_t now = *counter;

	if (now)
		*counter = now > n ? now - n : 0;
}

void ahead_used(struct mapping *map)
{
	relax(&map->ahead_lost, 1);
	relax(&map_account(map)->ahead_less, map->seg_size);
}

/* What cannot be lost need not be won back. */
void ahead_pressed(struct mapping *map)
{
	_Atomic size_t *less = &map_account(map)->ahead_less;

	*less = min_size(*less + SHORT_WEIGHT * map->seg_size, budget(map) / AHEAD_MOST_PART);
}

void ahead_wasted(struct mapping *map)
{
	map->ahead_lost = min_size(map->ahead_lost + WASTE_WEIGHT, window_most(map));
	ahead_pressed(map);
	add(map->stat.ahead_waste, 1);
}

/* Makes a run's window larger, and says which steps from its last fault on are to be loaded now: (*from, *to]. */
static void advance(const struct mapping *map, struct stream *r, long *from, long *to)
{
	size_t most = window_now(map);

	*from = lead(r) > 0 ? lead(r) : 0;
	r->window = min_size(r->window ? r->window * 2 : WINDOW_MIN, most);
	*to = (long)min_size(r->window, (size_t)*from + room(map));
	/* So that the store always has something to do, but not for little: where others have taken the room, it waits. */
	if (*to - *from < (long)min_size(job_segs(map), r->window / 2))
		*to = *from;
}

/* The last step up to `to` that ends a job; `from`, and nothing is to be loaded yet, if there is none. */
static long whole_jobs(const struct mapping *map, size_t i, long from, long to)
{
	size_t job = job_segs(map), end = i + (size_t)to + 1;
	long last = (long)(end - end % job - i) - 1;

	if (end >= map->segs)
		return to;
	return last > from ? last : from;
}

/* A fault that has overtaken what was to be read ahead brings in the rest of its cluster itself: a single segment would be
 * a hole in it. */
static void catch_up(struct mapping *map, size_t i)
{
	size_t cluster = map_cluster_size(map);

	if (cluster > 1 && !seg_has(map_seg(map, i), SEG_VALID))
		prefetch(map, i, min_size(cluster - i % cluster, map->segs - i), 1);
}

/* Some more than the last ones, which somebody else may just have held. */
static void let_go_behind(struct mapping *map, size_t i, size_t cluster)
{
	i -= i % cluster;
	for (size_t k = BEHIND_FIRST; k <= BEHIND_LAST && k * cluster <= i; k++)
		seg_drop_behind(map, i - k * cluster, cluster);
}

/* Loads what lies from one step behind segment i to another: (from, to]. */
static void post_steps(struct mapping *map, size_t i, long stride, long from, long to)
{
	if (to > from && stride > 0)
		post(map, (size_t)((long)i + (from + 1) * stride), (size_t)(to - from), (size_t)stride);
	else if (to > from)
		post(map, (size_t)((long)i + to * stride), (size_t)(to - from), (size_t)-stride);
}

/* Reads ahead if segment i continues a run. Returns in clusters of how many segments that comes; 0: who knows. */
static size_t follow(struct mapping *map, size_t i)
{
	bool in_jobs = false, overtaken = false;
	long from = 0, to = 0, stride = 0, end;
	struct stream *r;

	if (config.readahead == 0 || map->advice == UMMAP_ADV_RANDOM)
		return 1;
	if (!futex_trylock(&map->stream_lock))
		return 0;
	r = find(map, i);
	if (r) {
		r->last = i;
		r->seen += r->seen < SEEN_STRIDE;
		r->used = ++map->stream_clock;
		stride = r->stride;
	}
	if (stride && is_run(map, r)) {
		in_jobs = stride == 1 && r->window >= job_segs(map);
		overtaken = in_jobs && i <= r->until;
		advance(map, r, &from, &to);
		/* As far as there are segments. */
		end = stride > 0 ? ((long)map->segs - 1 - (long)i) / stride : (long)i / -stride;
		to = to < end ? to : end;
		to = in_jobs ? whole_jobs(map, i, from, to) : to;
		if (to > from)
			r->until = (size_t)((long)i + to * stride);
	}
	futex_unlock(&map->stream_lock);
	post_steps(map, i, stride, from, to);
	if (overtaken)
		catch_up(map, i);
	if (!r)
		return 0;
	return in_jobs ? map_cluster_size(map) : 1;
}

void ahead_fault(struct mapping *map, size_t i)
{
	size_t cluster = follow(map, i);

	if (cluster && map->advice == UMMAP_ADV_SEQUENTIAL)
		let_go_behind(map, i, cluster);
}
