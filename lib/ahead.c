/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Read-ahead puts segments on standby, where a fault finds them: it needs no state of its own but the runs
 * that it follows. Several runs of a mapping are followed at a time. Decides how far; never evicts what is
 * in use. One lock a mapping, only ever trylocked: whoever comes second goes without.
 */
#include "ahead.h"

#include "budget.h"
#include "seg.h"
#include "worker.h"

#include <ummap.h>

/* A run begins with so many segments, and one job loads about so many bytes. */
#define WINDOW_MIN 2
#define JOB_BYTES ((size_t)1 << 20)
/* Part of the budget, its group's or the process's, that a window may take. */
#define WINDOW_PART 8

static void load_job(void *arg, uint64_t first, uint64_t last)
{
	struct set *set = arg;

	seg_prefetch(set, first, last);
	set_put(set);
}

/* The caller uses the set; so does each job. */
static void post(struct set *set, size_t first, size_t last)
{
	size_t step = max_size(JOB_BYTES >> set->shift, 1);

	for (size_t i = first; i < last; i += step) {
		set->users++;
		if (!worker_post(load_job, set, i, min_size(i + step, last))) {
			set_put(set);
			return;
		}
	}
}

void ahead_want(struct set *set, size_t first, size_t last)
{
	post(set, first, min_size(last, set->segs));
}

static struct stream *find(struct set *set, size_t i)
{
	struct stream *oldest = set->streams;

	for (struct stream *r = set->streams; r < set->streams + STREAMS; r++) {
		if (r->used && i >= r->next && i <= max_size(r->next, r->until))
			return r;
		if (r->used < oldest->used)
			oldest = r;
	}
	*oldest = (struct stream){ .next = i };
	return oldest;
}

void ahead_fault(struct set *set, size_t i, size_t window)
{
	size_t budget = min_size(budget_bytes(), set_share(set)->most);
	size_t most = min_size(max_size(window >> set->shift, WINDOW_MIN), (budget / WINDOW_PART) >> set->shift);
	size_t from = 0, to = 0;
	struct stream *r;

	if (window == 0 || most == 0 || set->advice == UMMAP_ADV_RANDOM || !futex_trylock(&set->stream_lock))
		return;
	r = find(set, i);
	if (r->used || set->advice == UMMAP_ADV_SEQUENTIAL) {
		r->window = r->window ? min_size(r->window * 2, most) : min_size(WINDOW_MIN, most);
		r->until = max_size(r->until, i + 1);
		/* Half a window is still on its way: no hurry. */
		if (r->until - (i + 1) <= r->window / 2) {
			from = r->until;
			to = min_size(i + 1 + r->window, set->segs);
			r->until = max_size(to, from);
		}
	}
	r->next = i + 1;
	r->used = ++set->stream_clock;
	futex_unlock(&set->stream_lock);
	if (from < to)
		post(set, from, to);
}

void ahead_behind(struct set *set, size_t i)
{
	if (set->advice == UMMAP_ADV_SEQUENTIAL && i >= 2)
		seg_behind(set, i - 2);
}
