/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Absent -> lent, and back. A lent segment has no frame: its place in the view shows the pages that the kernel has of
 * the store, and only to be loaded from. For all other rooms it is absent. A store, or a pin, brings it in, and the
 * frame takes its place in the view by the call that publishes it. The kernel may let go of its pages, and then loads
 * them again by itself, page by page: correct, but slow; so somebody looks from time to time.
 * Takes the locks of segments; while one is held another is only trylocked.
 */
#include "paging/lend.h"

#include <sys/mman.h>

/* Faults cost more than pages that come along. Segments that are lent together begin at a multiple of their number. */
#define TOGETHER_BYTES ((size_t)16 << 20)
#define TOGETHER_MOST 64
/* Each piece may be a mapping of the kernel's, of which there are not many. */
#define STRETCHES_MAX 2048
/* How many pieces are looked at in one round. */
#define LOOKS 64

struct run {
	size_t first, last; /* segments [first, last) are locked */
};

static size_t together(const struct set *set)
{
	return min_size(max_size(TOGETHER_BYTES >> set->shift, 1), TOGETHER_MOST);
}

/* Whether it might be, as far as segments go. What is still to be carried is in neither file as it should be. */
static bool may_be_lent(const struct set *set, const struct seg *s)
{
	return !seg_has(s, SEG_VALID) && seg_target(s) == set->current && set_reads(set, s);
}

/* Whether it is lent, or could be and is not. */
static bool is_like(const struct set *set, const struct seg *s, bool lent)
{
	return seg_has(s, SEG_LENT) == lent && (lent || may_be_lent(set, s));
}

/* Locks segment i if it is like that and nobody has it. */
static bool lock_if(struct set *set, size_t i, bool lent)
{
	struct seg *s = set_seg(set, i);

	if (!is_like(set, s, lent) || !seg_trylock(s))
		return false;
	if (is_like(set, s, lent))
		return true;
	seg_unlock(s);
	return false;
}

/* The neighbours of segment i, which is locked, that could come along. */
static struct run lock_neighbours(struct set *set, size_t i)
{
	size_t n = together(set), begin = i / n * n, end = min_size(begin + n, set->size >> set->shift);
	struct run r = { i, i + 1 };

	while (r.last < end && lock_if(set, r.last, false))
		r.last++;
	while (r.first > begin && lock_if(set, r.first - 1, false))
		r.first--;
	return r;
}

static void unlock(struct set *set, const struct run *r)
{
	for (size_t i = r->first; i < r->last; i++)
		seg_unlock(set_seg(set, i));
}

/* Makes a run smaller. */
static void unlock_others(struct set *set, struct run *r, size_t i)
{
	unlock(set, &(struct run){ r->first, i });
	unlock(set, &(struct run){ i + 1, r->last });
	*r = (struct run){ i, i + 1 };
}

/* Whether the kernel has the pages of a run; if so, they appear at `view`, unless it is NULL. */
static bool show(struct set *set, const struct run *r, char *view)
{
	const struct target *t = &set->targets[set->current];
	size_t len = (r->last - r->first) << set->shift;

	if (io_lend(t->store, view, len, t->offset + ((uint64_t)r->first << set->shift)) != 1)
		return false;
	if (view)
		madvise(view, len, MADV_DONTFORK);
	return true;
}

static void note(struct set *set, const struct run *r)
{
	for (size_t i = r->first; i < r->last; i++) {
		struct seg *s = set_seg(set, i);

		set->lent += !seg_has(s, SEG_LENT);
		seg_change(s, 0, SEG_LENT);
		set_mark(set->touched, i);
	}
	set->stretches++;
}

/* Segment i, locked, and perhaps others with it. One that is lent already was so by a thread that was faster. */
static bool lend_locked(struct set *set, size_t i)
{
	struct run one = { i, i + 1 }, r = one;
	bool done;

	/* Asked first, so that what is not in memory costs little. */
	if (!show(set, &one, NULL))
		return false;
	if (!seg_has(set_seg(set, i), SEG_LENT))
		r = lock_neighbours(set, i);
	done = r.last - r.first > 1 && show(set, &r, set_view(set, r.first));
	if (!done) {
		unlock_others(set, &r, i);
		done = show(set, &one, set_view(set, i));
	}
	if (done)
		note(set, &r);
	unlock_others(set, &r, i);
	return done;
}

bool lend(struct set *set, size_t i)
{
	struct seg *s = set_seg(set, i);
	bool done = false;

	/* Only where all of it belongs to the mapping, and to this process alone. */
	if (!set->engine->page_cache || set->shared || i >= set->size >> set->shift ||
	    !io_lends(set->targets[set->current].store))
		return false;
	if (set->stretches >= STRETCHES_MAX && lend_recall(set, 0, set->segs) == 0)
		set->stretches = 0;
	seg_lock(s);
	if (may_be_lent(set, s))
		done = lend_locked(set, i);
	seg_unlock(s);
	if (done)
		add(set->stat.read_faults, 1);
	return done;
}

/* A lent segment, and those behind it that are, too, by one call. */
static int recall_run(struct set *set, size_t i, size_t last)
{
	size_t end = min_size(i + together(set), last);
	struct run r = { i, i + 1 };
	int err = 0;

	seg_lock(set_seg(set, i));
	if (seg_has(set_seg(set, i), SEG_LENT)) {
		while (r.last < end && lock_if(set, r.last, true))
			r.last++;
		err = set->engine->discard(set_view(set, i), (r.last - i) << set->shift);
		for (size_t k = i; k < r.last && !err; k++) {
			seg_change(set_seg(set, k), SEG_LENT, 0);
			set->lent--;
		}
	}
	unlock(set, &r);
	return err;
}

int lend_recall(struct set *set, size_t first, size_t last)
{
	int err = 0;

	if (!set->lent)
		return 0;
	for (size_t i = set_next(set, set->touched, first); i < last && !err; i = set_next(set, set->touched, i + 1)) {
		if (seg_has(set_seg(set, i), SEG_LENT))
			err = recall_run(set, i, last);
	}
	return err;
}

/* Goes on where the round before stopped. Locks nothing: what it finds may be out of date, but does no harm. */
void lend_look(struct set *set)
{
	size_t n = together(set), i = set->next_look;

	if (!set->lent)
		return;
	for (unsigned looks = 0; looks < LOOKS; looks++) {
		struct run r;

		i = set_next(set, set->touched, i);
		while (i < set->segs && !seg_has(set_seg(set, i), SEG_LENT))
			i = set_next(set, set->touched, i + 1);
		r = (struct run){ i, i };
		while (r.last < set->segs && r.last - i < n && seg_has(set_seg(set, r.last), SEG_LENT))
			r.last++;
		if (i == r.last)
			break;
		if (!show(set, &r, NULL))
			lend_recall(set, r.first, r.last);
		i = r.last;
	}
	set->next_look = i < set->segs ? i : 0;
}
