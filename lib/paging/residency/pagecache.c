/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page-cache mappings: absent segments whose slots show the kernel's pages of the store,
 * read-only. All other code treats such a segment as absent. A store or a pin pages it in, and the
 * call that maps the frame replaces the pages (where slots are watched, the call before it). The
 * kernel may evict the pages, and then loads them again by itself, page by page, which is correct
 * but slow; therefore, the background thread checks the mappings. If the kernel cannot load a
 * page, or the file has become shorter, the access raises SIGBUS: then the segment is paged in,
 * too.
 *
 * Page-cache mappings are resident memory of the process, so they count towards the budget of the
 * process and of the account. They use the part that frames leave. If both need more than there
 * is, a frame comes first, because a segment that loses its frame must be read again, and one that
 * loses its page-cache mapping need only be mapped again; but a part of each budget stays with the
 * page-cache mappings. The oldest run is unmapped first, because accesses to mapped pages are not
 * seen.
 *
 * Locks: while the lock of a segment is held, others are only tried. One leaf lock protects the
 * lists of runs.
 */
#include "paging/residency/pagecache.h"

#include "engine/engine.h"
#include "engine/sigsegv.h"
#include "budget/budget.h"
#include "budget/share.h"
#include "paging/residency/evict.h"

#include <sys/mman.h>

/* Segments that were mapped from the page cache together. Some may have been unmapped since. */
struct pagecache_run {
	struct ummap_node link;       /* in the ring of its account, or of unused runs */
	struct mapping *map;
	size_t first, last;           /* segments [first, last) */
};

/* Segments [first, last), locked. */
struct span {
	size_t first, last;
};

static struct pagecache_run runs[MAX_PAGECACHE_RUNS];
static unsigned runs_touched;         /* runs from this one on were never used */
static struct ummap_node unused_runs = { &unused_runs, &unused_runs };
static _Atomic uint32_t lock;         /* protects the rings of runs */

/* ---- Segments ---- */

static size_t whole_segs(const struct mapping *map)
{
	return map->size >> map->shift;
}

/* Whether the state of a segment allows it to be mapped. A segment that still has to migrate is up
 * to date in neither store. */
static bool may_be_mapped(const struct mapping *map, const struct seg *s)
{
	return !seg_has(s, SEG_VALID) && seg_backing(s) == map->current && map_reads(map, s);
}

/* Whether a segment is mapped from the page cache, if `mapped`; else whether it could be and is
 * not. */
static bool fits_span(const struct mapping *map, const struct seg *s, bool mapped)
{
	return seg_has(s, SEG_PAGECACHE) == mapped && (mapped || may_be_mapped(map, s));
}

/* Locks segment i if it is in that state and not locked. */
static bool lock_if(struct mapping *map, size_t i, bool mapped)
{
	struct seg *s = map_seg(map, i);

	if (!fits_span(map, s, mapped) || !seg_trylock(s))
		return false;
	if (fits_span(map, s, mapped))
		return true;
	seg_unlock(s);
	return false;
}

static void unlock_span(struct mapping *map, const struct span *span)
{
	for (size_t i = span->first; i < span->last; i++)
		seg_unlock(map_seg(map, i));
}

/* Reduces a span to segment i. */
static void unlock_others(struct mapping *map, struct span *span, size_t i)
{
	unlock_span(map, &(struct span){ span->first, i });
	unlock_span(map, &(struct span){ i + 1, span->last });
	*span = (struct span){ i, i + 1 };
}

/* Whether the kernel has all pages of a span; if so, they are mapped at `range`, unless that is
 * NULL. The kernel must not read ahead for accesses to them: what it read would be mapped by the
 * next look-up, and so on to the end of the file. */
static bool map_kernel_pages(struct mapping *map, const struct span *span, char *range)
{
	const struct backing *t = &map->backings[map->current];
	size_t len = (span->last - span->first) << map->shift;

	if (io_map_pagecache(t->store, range, len,
	    t->offset + ((uint64_t)span->first << map->shift)) != 1)
		return false;
	if (range) {
		raw_madvise(range, len, MADV_DONTFORK);
		raw_madvise(range, len, MADV_RANDOM);
	}
	return true;
}

int pagecache_prepare(const struct mapping *map)
{
	return pagecache_may(map) ? sigsegv_start_bus() : 0;
}

bool pagecache_has(struct mapping *map, size_t first, size_t last)
{
	return last <= whole_segs(map) && pagecache_may(map) &&
	       account_allows_pagecache(map_account(map), map->seg_size) &&
	       map_kernel_pages(map, &(struct span){ first, last }, NULL);
}

void pagecache_uncount(struct mapping *map, size_t segs)
{
	map->residency.pagecached -= segs;
	account_refund_pagecache(map_account(map), segs << map->shift);
}

/* ---- Runs ---- */

static struct pagecache_run *run_of(struct ummap_node *link)
{
	return container_of(link, struct pagecache_run, link);
}

/* Returns NULL if all of them are in use. */
static struct pagecache_run *take_unused_run(void)
{
	struct pagecache_run *run = NULL;

	futex_lock(&lock);
	if (!list_empty(&unused_runs)) {
		run = run_of(unused_runs.next);
		list_remove(&run->link);
	} else if (runs_touched < MAX_PAGECACHE_RUNS) {
		run = &runs[runs_touched++];
	}
	futex_unlock(&lock);
	return run;
}

static void insert_run(struct ummap_node *ring, struct pagecache_run *run)
{
	futex_lock(&lock);
	list_insert(ring, &run->link);
	futex_unlock(&lock);
}

/* Takes the oldest run of an account out of the ring, with a use of its mapping. NULL: there is
 * none whose mapping may be used now. */
static struct pagecache_run *take_oldest_run(struct account *account)
{
	struct pagecache_run *run = NULL;
	struct ummap_node *ring = &account->pagecache_runs;

	futex_lock(&lock);
	for (struct ummap_node *n = ring->next; n != ring && !run; n = n->next) {
		if (map_enter(run_of(n)->map))
			run = run_of(n);
	}
	if (run)
		list_remove(&run->link);
	futex_unlock(&lock);
	return run;
}

/* Unmaps a span of segments that are mapped from the page cache, and unlocks it. */
static int unmap_span(struct mapping *map, const struct span *span)
{
	size_t n = span->last - span->first;
	int err = engine_reset(map->engine, map_slot(map, span->first), n << map->shift,
			       map->writable);

	if (!err) {
		for (size_t i = span->first; i < span->last; i++)
			seg_change(map_seg(map, i), SEG_PAGECACHE, 0);
		pagecache_uncount(map, n);
	}
	unlock_span(map, span);
	return err;
}

/* Unmaps segment i, which is locked, and those behind it that are mapped from the page cache and
 * not locked. */
static int unmap_from(struct mapping *map, size_t i, size_t last)
{
	struct span span = { i, i + 1 };

	while (span.last < last && span.last - i < MAX_PAGECACHE_RUN_SEGMENTS &&
	       lock_if(map, span.last, true))
		span.last++;
	return unmap_span(map, &span);
}

/* Unmaps the segments of [first, last) that are not locked. *busy: some were. Returns whether some
 * were unmapped. */
static bool unmap_unlocked(struct mapping *map, size_t first, size_t last, bool *busy)
{
	bool done = false;
	int err = 0;

	*busy = false;
	for (size_t i = first; i < min_size(last, map->segs) && !err; i++) {
		if (lock_if(map, i, true)) {
			err = unmap_from(map, i, last);
			done |= !err;
		}
		*busy |= seg_has(map_seg(map, i), SEG_PAGECACHE);
	}
	return done;
}

/* Unmaps the oldest run of an account. Returns false if there is nothing to unmap now. */
static bool unmap_oldest_run(struct account *account)
{
	struct pagecache_run *run = take_oldest_run(account);
	struct mapping *map;
	bool done, busy;

	if (!run)
		return false;
	map = run->map;
	done = unmap_unlocked(map, run->first, run->last, &busy);
	/* The mapping may end as soon as it is left, and forgets the runs that are in the ring. */
	insert_run(busy ? &account->pagecache_runs : &unused_runs, run);
	map_leave(map);
	return done || !busy;
}

/* Unmaps the oldest run of an account, or where that has none, of another account. */
static bool unmap_any_run(struct account *mine)
{
	struct account *other;

	if (unmap_oldest_run(mine))
		return true;
	for (size_t n = 0; (other = account_nth(n)); n++) {
		if (other != mine && unmap_oldest_run(other))
			return true;
	}
	return false;
}

/* Reserves bytes for a run, and a place in the ring. NULL: there is no room for it now. */
static struct pagecache_run *reserve_run(struct mapping *map, size_t bytes)
{
	struct account *account = map_account(map);
	struct pagecache_run *run;

	share_expect(bytes);
	while (!account_charge_pagecache(account, bytes)) {
		bool is_full = !budget_has_total_room(bytes);

		if (!(is_full && frame_shrink(NULL, 0)) && !unmap_any_run(account))
			return NULL;
	}
	while (!(run = take_unused_run())) {
		if (!unmap_any_run(account)) {
			account_refund_pagecache(account, bytes);
			return NULL;
		}
	}
	/* Frames are evicted if they are in the part that is guaranteed to page-cache mappings. */
	evict_shrink(map, map->member.least,
		     EVICTION_STEPS_PER_RUN_SEGMENT * (unsigned)(bytes >> map->shift));
	return run;
}

bool pagecache_yield(struct mapping *map, bool account)
{
	struct account *mine = map_account(map);

	if (account)
		return account_can_unmap_pagecache(mine) && unmap_oldest_run(mine);
	return !budget_has_room(map->seg_size, map->member.least) && budget_can_unmap_pagecache() &&
	       unmap_any_run(mine);
}

void pagecache_shrink(void)
{
	while (budget_must_unmap_pagecache() && unmap_any_run(account_common()))
		;
}

/* ---- Mapping ---- */

/* The segments that a run of the mapping has at most. */
static size_t most_run_segs(const struct mapping *map)
{
	return min_size(max_size(MAX_PAGECACHE_RUN_BYTES >> map->shift, 1),
			MAX_PAGECACHE_RUN_SEGMENTS);
}

/* The segments around i that may be mapped with it, if they all are `part` of the budget. */
static struct span span_around(const struct mapping *map, size_t i, size_t part)
{
	size_t limit = account_budget(map_account(map)), n = 1;
	size_t bytes = min_size(max_size(limit / part, MIN_PAGECACHE_RUN_BYTES),
				limit / ADJACENT_RUN_PART);
	size_t most = min_size(bytes >> map->shift, most_run_segs(map));

	while (2 * n <= most)
		n *= 2;
	return (struct span){ i / n * n, min_size(i / n * n + n, whole_segs(map)) };
}

/* Whether segment i, if there is one, is mapped from the page cache. */
static bool is_mapped(const struct mapping *map, size_t i)
{
	return i < map->segs && seg_has(map_seg(map, i), SEG_PAGECACHE);
}

/* The segments around i to be mapped with it: few if memory is short, unless accesses seem to be
 * adjacent. */
static struct span choose_span(const struct mapping *map, size_t i)
{
	struct span few = span_around(map, i, SCATTERED_RUN_PART);

	if (account_is_half_unused(map_account(map)) || is_mapped(map, few.first - 1) ||
	    is_mapped(map, few.last))
		return span_around(map, i, ADJACENT_RUN_PART);
	return few;
}

/* Locks the neighbours of segment i, which is locked, within a span, as far as they can be mapped
 * with it. */
static struct span lock_neighbours(struct mapping *map, size_t i, const struct span *within)
{
	struct span span = { i, i + 1 };

	while (span.last < within->last && lock_if(map, span.last, false))
		span.last++;
	while (span.first > within->first && lock_if(map, span.first - 1, false))
		span.first--;
	return span;
}

/* Counts the segments of a span, which were mapped. Returns how many had not been. */
static size_t count_span(struct mapping *map, const struct span *span)
{
	size_t n = 0;

	for (size_t i = span->first; i < span->last; i++) {
		struct seg *s = map_seg(map, i);

		n += !seg_has(s, SEG_PAGECACHE);
		seg_change(s, 0, SEG_PAGECACHE);
		map_touch(map, i);
	}
	map->residency.pagecached += n;
	return n;
}

/* Maps segment i, which is locked, and others with it. If another thread has mapped it in the
 * meantime, it is mapped again. *run: what was mapped. Returns how many segments more are mapped
 * than before; -1: none could be. */
static long map_locked(struct mapping *map, size_t i, const struct span *within,
	struct pagecache_run *run)
{
	struct span span = { i, i + 1 };
	long n = -1;
	bool done;

	if (!seg_has(map_seg(map, i), SEG_PAGECACHE))
		span = lock_neighbours(map, i, within);
	done = map_kernel_pages(map, &span, map_slot(map, span.first));
	if (!done && span.last - span.first > 1) {
		unlock_others(map, &span, i);
		done = map_kernel_pages(map, &span, map_slot(map, i));
	}
	run->map = map;
	run->first = span.first;
	run->last = span.last;
	if (done)
		n = (long)count_span(map, &span);
	unlock_others(map, &span, i);
	return n;
}

bool pagecache_map(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	struct account *account = map_account(map);
	struct pagecache_run *run;
	struct span within;
	size_t segs;
	long n = -1;

	/* Only a segment that is within the mapping as a whole can be mapped, and one of this
	 * process alone. */
	if (!may_be_mapped(map, s) || !pagecache_has(map, i, i + 1))
		return false;
	within = choose_span(map, i);
	segs = within.last - within.first;
	run = reserve_run(map, segs << map->shift);
	if (!run)
		return false;
	seg_lock(s);
	if (may_be_mapped(map, s))
		n = map_locked(map, i, &within, run);
	seg_unlock(s);
	account_refund_pagecache(account, (segs - (size_t)(n > 0 ? n : 0)) << map->shift);
	insert_run(n > 0 ? &account->pagecache_runs : &unused_runs, run);
	if (n >= 0)
		add(map->stat.read_faults, 1);
	return n >= 0;
}

int pagecache_unmap(struct mapping *map, size_t first, size_t last)
{
	int err = 0;

	if (!map->residency.pagecached)
		return 0;
	for (size_t i = map_next_touched(map, first); i < last && !err;
	     i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		if (!seg_has(s, SEG_PAGECACHE))
			continue;
		seg_lock(s);
		if (seg_has(s, SEG_PAGECACHE))
			err = unmap_from(map, i, last);
		else
			seg_unlock(s);
	}
	return err;
}

/* Continues where the last round stopped. It takes no locks: an outdated result does no harm. */
void pagecache_check(struct mapping *map)
{
	size_t n = most_run_segs(map), i = map->residency.next_look;

	if (!map->residency.pagecached)
		return;
	for (unsigned checks = 0; checks < MAX_PAGECACHE_CHECKS; checks++) {
		struct span span;

		i = map_next_touched(map, i);
		while (i < map->segs && !seg_has(map_seg(map, i), SEG_PAGECACHE))
			i = map_next_touched(map, i + 1);
		span = (struct span){ i, i };
		while (span.last - i < n && is_mapped(map, span.last))
			span.last++;
		if (i == span.last)
			break;
		if (!map_kernel_pages(map, &span, NULL))
			pagecache_unmap(map, span.first, span.last);
		i = span.last;
	}
	map->residency.next_look = i < map->segs ? i : 0;
}

/* ---- The end ---- */

/* Runs that begin at a segment that remains stay in the ring. They are unmapped as far as their
 * segments remain. */
static void forget_runs(struct mapping *map, size_t first)
{
	struct ummap_node *ring = &map_account(map)->pagecache_runs, *next;

	futex_lock(&lock);
	for (struct ummap_node *n = ring->next; n != ring; n = next) {
		next = n->next;
		if (run_of(n)->map == map && run_of(n)->first >= first) {
			list_remove(n);
			list_insert(&unused_runs, n);
		}
	}
	futex_unlock(&lock);
}

void pagecache_forget(struct mapping *map, size_t first)
{
	forget_runs(map, first);
	if (!map->residency.pagecached)
		return;
	for (size_t i = map_next_touched(map, first); i < map->segs;
	     i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		if (!seg_has(s, SEG_PAGECACHE))
			continue;
		seg_lock(s);
		seg_change(s, SEG_PAGECACHE, 0);
		seg_unlock(s);
		pagecache_uncount(map, 1);
	}
}

void pagecache_forget_all(void)
{
	lock = 0;
	runs_touched = 0;
	list_init(&unused_runs);
}
