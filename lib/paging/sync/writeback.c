/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes dirty segments. A segment is made read-only first and then written, under its lock: a
 * store during the write waits, and makes the segment dirty again, so it is part of that write or
 * of the next one. Accesses of other processes (peer/export.c) are waited for, and refused until
 * the segment is dirty again. Other segments are written together with it: neighbours, and
 * segments not far away if the store takes several requests at a time. Their locks are only tried.
 * Nothing here evicts or loads.
 */
#include "paging/sync/writeback.h"

#include "engine/engine.h"
#include "paging/sync/commit.h"
#include "paging/sync/guess.h"
#include "paging/sync/sync.h"
#include "paging/fault/segment.h"
#include "paging/residency/huge_blocks.h"
#include "paging/residency/neighbors.h"
#include "base/scratch.h"
#include "base/spare.h"
#include "paging/fault/stall.h"
#include "paging/sync/twin.h"
#include "base/worker.h"

#include <string.h>

static _Atomic uint32_t in_progress; /* runs that are being written */
static _Atomic uint32_t ended;       /* runs that were written, also in vain: a futex */

/* Segments in ascending order that are written together. All are locked. */
struct run {
	struct mapping *map;
	size_t at[MAX_WRITE_RUN_SEGMENTS];         /* their numbers */
	struct seg *segs[MAX_WRITE_RUN_SEGMENTS];  /* their headers */
	unsigned n;
	uint32_t busy;             /* bits by index in `at`: segments that may change without a
				      fault during the write, and so stay dirty */
	uint32_t unchanged;        /* bits of segments that the program has not stored to */
	uint32_t copied;           /* bits of segments of which a commit's copy is written */
	uint32_t failed;           /* bits of segments that were not written as a whole */
	struct ummap_io io[MAX_WRITE_RUN_SEGMENTS];
	unsigned requests;
};

/* The segments that may join a run. */
enum kind { NEIGHBOURS, INACTIVE_NEIGHBOURS, ANY_NEAR, OF_COMMIT };

static bool can_join_run(const struct mapping *map, size_t i, const struct seg *s, enum kind kind)
{
	if (kind == OF_COMMIT)
		return commit_needs(map, i, s);
	return seg_has(s, SEG_VALID) && map_must_write(map, s) &&
	       (kind != INACTIVE_NEIGHBOURS ||
		(seg_has(s, SEG_INACTIVE | SEG_DIRTY) && !commit_bars(map, s)));
}

size_t writeback_run(const struct mapping *map)
{
	size_t most = map->bulk ? MAX_WRITE_RUN_BYTES >> map->shift : 1;

	return min_size(max_size(most, 1), MAX_WRITE_RUN_SEGMENTS);
}

/*
 * Shortens a run of the maximum length so that it ends at a multiple of the store's optimal
 * transfer size, such as the stripe of a parallel file system. The next run begins there, so the
 * two writes share no stripe. A run that contains no such multiple stays as it is.
 */
static void align_end(struct run *run)
{
	const struct mapping *map = run->map;
	const struct backing *t = &map->backings[map->current];
	uint32_t optimal = io_geom(t->store)->optimal;
	unsigned n = run->n;

	while (optimal && n > 0 &&
	       (t->offset + ((uint64_t)(run->at[n - 1] + 1) << map->shift)) % optimal != 0)
		n--;
	while (n > 0 && run->n > n)
		seg_unlock(run->segs[--run->n]);
}

/* Begins with segment i, which is locked, and adds others before `last`. */
static void run_begin(struct run *run, size_t i, size_t last, enum kind kind)
{
	const struct mapping *map = run->map;
	size_t most = writeback_run(map), end = min_size(i + MAX_WRITE_RUN_SPAN, last);
	bool gaps = kind >= ANY_NEAR && io_async(map->backings[map->current].store);

	run->at[0] = i;
	run->segs[0] = map_seg(map, i);
	run->n = 1;
	while (run->n < most && ++i < end) {
		struct seg *s = map_seg(map, i);

		if (!can_join_run(map, i, s, kind) && gaps)
			continue;
		if (!can_join_run(map, i, s, kind) || !seg_trylock(s))
			break;
		if (!can_join_run(map, i, s, kind)) {
			seg_unlock(s);
			break;
		}
		run->segs[run->n] = s;
		run->at[run->n++] = i;
	}
	if (run->n == most)
		align_end(run);
	for (unsigned k = 0; k < run->n && kind == OF_COMMIT; k++)
		run->copied |= (uint32_t)commit_has_copy(map, run->at[k]) << k;
}

/* Whether the kernel has pinned a page of segment i, to which it can store then whatever the rights
 * of the page. A page that returns to the pool is not pinned, so if the engine refuses to move
 * pinned pages and accesses wait until the page returns, the segment moves to the pool for the
 * write. */
static bool is_pinned_by_kernel(struct mapping *map, size_t i, struct seg *s)
{
	if (!seg_has(s, SEG_WRITABLE) || seg_pins(s))
		return false;
	cache_remove(&map->member, s);
	return seg_deactivate(map, i, s) < 0;
}

/* The bytes of the k-th segment that are written. */
static char *contents(const struct run *run, unsigned k)
{
	return run->copied >> k & 1 ? commit_copy(run->map, run->at[k]) :
				      map_contents(run->map, run->at[k], run->segs[k]);
}

/* Step 2 of the cycle in STATES.md, for all segments of the run, with one call for each stretch of
 * writable ones that are not busy. */
static int make_readonly(struct run *run)
{
	struct mapping *map = run->map;
	uint32_t writable = 0; /* bits as in `busy` */

	for (unsigned k = 0; k < run->n; k++) {
		struct seg *s = run->segs[k];

		if (run->copied >> k & 1)
			continue;
		if (seg_has(s, SEG_DEVICE) ||
		    (map->engine->refuses_pinned && is_pinned_by_kernel(map, run->at[k], s)))
			run->busy |= 1u << k;
		else if (seg_has(s, SEG_WRITABLE))
			writable |= 1u << k;
	}
	for (unsigned k = 0, n; k < run->n; k += n) {
		char *range = map_slot(map, run->at[k]);
		size_t len;
		int err;

		n = 1;
		if (!(writable >> k & 1))
			continue;
		while (k + n < run->n && writable >> (k + n) & 1 &&
		       run->at[k + n] == run->at[k] + n)
			n++;
		len = map_slots_len(map, run->at[k], n);
		if (map->engine->move_in && !map->engine->refuses_pinned)
			huge_blocks_note_single(map, run->segs[k]);
		do
			err = map->engine->protect(map->engine, range, len, false);
		while (err == -ENOMEM && spare_release());
		if (err) {
			/* Some of the rights may have changed. */
			map->engine->protect(map->engine, range, len, true);
			return err;
		}
		for (unsigned j = k; j < k + n; j++)
			seg_change(run->segs[j], SEG_WRITABLE, 0);
	}
	return 0;
}

/* Whether only the changed bytes of the k-th segment are written, because other mappings write to
 * it, too. A segment that migrates is written to the current store as a whole. */
static bool is_written_in_parts(const struct run *run, unsigned k)
{
	return twin_has(run->map, run->at[k]) && seg_backing(run->segs[k]) == run->map->current;
}

/* Step 4 for the segments of the run that are written in parts. Returns 0 or the first error. The
 * parts of a segment that has failed are written again with the rest of it. */
static int write_parts(struct run *run)
{
	struct mapping *map = run->map;
	int err = 0;

	for (unsigned k = 0; k < run->n; k++) {
		size_t i = run->at[k];
		const char *buf = contents(run, k);
		long end;

		if (!is_written_in_parts(run, k))
			continue;
		end = (run->busy >> k & 1) ? twin_write_busy(map, i, buf) :
			twin_write(map, i, buf, run->io, MAX_WRITE_RUN_SEGMENTS);
		if (end > 0)
			map_extend_stored(map, ((uint64_t)i << map->shift) + (uint64_t)end);
		if (end < 0) {
			run->failed |= 1u << k;
			err = err ? err : (int)end;
		}
	}
	return err;
}

/* Makes requests for the segments that are written as a whole and have bytes to write. io.owner is
 * the segment. If the store ends within the run, the request for a segment ends with its last byte;
 * but if the next request is for the next segment, both are one request, so nothing is cut. */
static void make_requests(struct run *run)
{
	struct ummap_io *before = NULL;
	struct mapping *map = run->map;
	const struct backing *t = &map->backings[map->current];

	run->requests = 0;
	for (unsigned k = 0; k < run->n; k++) {
		struct seg *s = run->segs[k];
		size_t i = run->at[k];
		char *buf = contents(run, k);
		uint64_t off = t->offset + ((uint64_t)i << map->shift);
		size_t len;

		/* Another process may have written other contents to the store. */
		if (guess_was_wrong(map, s, buf)) {
			run->unchanged |= 1u << k;
			continue;
		}
		len = map->writers && is_written_in_parts(run, k) ? 0 : map_write_len(map, i, buf);
		if (!len)
			continue;
		if (before && before->off + map->seg_size == off)
			before->len = map->seg_size;
		before = &run->io[run->requests++];
		*before = (struct ummap_io){ .op = UMMAP_IO_WRITE, .buf = buf, .len = len,
					     .off = off, .owner = s };
	}
}

/* Runs n > 0 requests. Contents on small pages are copied to one piece of memory first, because
 * requests for many pieces take longer. huge: whether all contents are on a huge page. */
static void write_requests(struct mapping *map, struct ummap_io *io, unsigned n, bool huge)
{
	struct store *store = map->backings[map->current].store;
	size_t bytes = 0, used = 0;
	char *contents[MAX_WRITE_RUN_SEGMENTS], *buffer = NULL;
	enum scratch kind;

	for (unsigned k = 0; k < n; k++)
		bytes += round_up(io[k].len, map->seg_size);
	kind = scratch_for(bytes);
	if (!huge && frames_are_copied(map->frames) && bytes >= MIN_COPIED_WRITE_BYTES &&
	    bytes <= SCRATCH_LARGE_SIZE && io_geom(store)->align > 1)
		buffer = scratch_take(kind, &bytes);
	for (unsigned k = 0; k < n && buffer; k++) {
		contents[k] = io[k].buf;
		io[k].buf = memcpy(buffer + used, io[k].buf, io[k].len);
		used += round_up(io[k].len, map->seg_size);
	}
	io_run(store, io, n, map->bulk, &map->stat.io);
	for (unsigned k = 0; k < n && buffer; k++)
		io[k].buf = contents[k];
	if (buffer)
		scratch_give(kind, &bytes, buffer);
}

/* Step 6 for segment i, which the store has. */
static void become_clean(struct mapping *map, size_t i, struct seg *s, bool busy, bool unchanged)
{
	bool dirty = seg_has(s, SEG_DIRTY);

	if (!unchanged) {
		seg_set_backing(s, map->current);
		seg_change(s, 0, SEG_STORED);
	}
	if (seg_has(s, SEG_COMMIT))
		map->sync.commit_left--;
	seg_change(s, SEG_COMMIT, 0);
	/* A busy segment stays dirty, because it may be stored to without a fault. */
	if (busy)
		return;
	if (unchanged)
		guess_end(s);
	else
		flush_note(map, s);
	if (!dirty)
		return; /* a clean segment has migrated */
	if (seg_has(s, SEG_INACTIVE)) {
		cache_remove(&map->member, s);
		seg_change(s, SEG_DIRTY, 0);
		cache_deactivate(&map->member, s, INACTIVE_CLEAN);
	} else {
		cache_touch(&map->member, s, UMMAP_EV_CLEANED);
		seg_change(s, SEG_DIRTY, 0);
	}
	if (map->writers)
		twin_drop(map, i);
}

/* Whether the mapping keeps its error after a successful write. Storage may accept some segments
 * and refuse others. If each success removed the error, stores would exceed the bound a little more
 * after each one. */
static bool must_keep_error(const struct mapping *map)
{
	return cache_count_bytes(&map->member).dirty > 0 && stall_is_full(map);
}

/* Ends the run. err: nothing was written; part: the first error of segments that are written in
 * parts. Returns the first error. */
static int run_end(struct run *run, int err, int part)
{
	struct mapping *map = run->map;
	unsigned request = 0;

	for (unsigned k = 0; k < run->n; k++) {
		struct seg *s = run->segs[k];
		const struct ummap_io *io = NULL;
		bool written;

		if (request < run->requests && run->io[request].owner == s)
			io = &run->io[request++];
		if (err == 0 && io && io->res == 0)
			map_extend_stored(map, ((uint64_t)run->at[k] << map->shift) + io->len);
		written = err == 0 && (!io || io->res == 0) && !(run->failed >> k & 1);
		if (written && run->copied >> k & 1)
			commit_note_copy(map, run->at[k], s, !(run->unchanged >> k & 1));
		else if (written)
			become_clean(map, run->at[k], s, run->busy >> k & 1,
				     run->unchanged >> k & 1);
		/* A part may have been written over the contents in the store: only memory has the
		 * segment now. */
		else if (err == 0 && map_in_order(map) && !seg_has(s, SEG_DIRTY))
			flush_again(map, run->at[k], s);
	}
	for (unsigned i = 0; i < run->requests && !err; i++)
		part = part ? part : run->io[i].res;
	/* Faults read the field, so it is written only if it changes. */
	if (!err && map->sync.write_error != -part && !(part == 0 && must_keep_error(map)))
		map->sync.write_error = -part;
	err = err ? err : part;
	if (!map_in_order(map) && !commit_runs(map))
		map->member.retry = err ? sys_now() + WRITE_RETRY_MS : 0;
	return err;
}

void writeback_note_end(void)
{
	ended++;
	futex_wake(&ended, INT32_MAX);
}

/* Steps 2 to 6 for a run. Unlocks all of its segments, but the first one if `keep`: the mapping may
 * end as soon as none is locked. */
static int write_run(struct run *run, bool keep)
{
	struct mapping *map = run->map;
	int err, part = 0;

	in_progress++;
	err = make_readonly(run);
	if (!err) {
		/* Step 3: stores of other processes are part of this write, or find the segment
		 * clean. */
		for (unsigned k = 0; k < run->n; k++)
			map_await(map, run->segs[k]);
		/* Step 4. */
		part = map->writers ? write_parts(run) : 0;
		make_requests(run);
		if (run->requests)
			write_requests(map, run->io, run->requests, false);
		/* Step 5, after the write: a flush during the write did not cover it. */
		map->sync.flush.due = true;
	}
	err = run_end(run, err, part);
	for (unsigned i = run->n; i-- > (keep ? 1 : 0);)
		seg_unlock(run->segs[i]);
	in_progress--;
	writeback_note_end();
	return err;
}

int writeback_locked(struct mapping *map, size_t i, size_t last)
{
	struct run run = { .map = map };

	/* Only neighbours: an ordered migration may be moving contents within their file. */
	run_begin(&run, i, last, NEIGHBOURS);
	return write_run(&run, true);
}

/* ---- Stretches: many adjacent segments ---- */

/* Whether the store lacks the contents of segment i, which is read-only and locked. If the program
 * has stored nothing to it, it becomes clean. */
static bool must_write(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);

	if (!seg_has(s, SEG_DIRTY))
		return false;
	if (!guess_was_wrong(map, s, map_slot(map, i)))
		return true;
	become_clean(map, i, s, false, true);
	return false;
}

/* The number of bytes of the adjacent segments [first, end) that must be written. */
static size_t count_bytes(struct mapping *map, size_t first, size_t end)
{
	size_t last = 0;

	while (end > first && !(last = map_write_len(map, end - 1, map_slot(map, end - 1))))
		end--;
	return end > first ? ((end - 1 - first) << map->shift) + last : 0;
}

static void become_clean_all(struct mapping *map, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		become_clean(map, i, map_seg(map, i), false, false);
}

/* Segments [first, end) are in the store: the first len bytes were written, and the rest need not
 * be. */
static void note_written(struct mapping *map, size_t first, size_t end, size_t len)
{
	if (len)
		map_extend_stored(map, ((uint64_t)first << map->shift) + len);
	become_clean_all(map, first, end);
}

/* Writes the segments of a request that has failed, so that one bad block does not affect others.
 * Returns 0 or the first error. */
static int write_one_by_one(struct mapping *map, size_t first, size_t end,
			    const struct ummap_io *all)
{
	int err = 0;

	for (size_t i = first, done = 0; i < end; i++, done += map->seg_size) {
		struct ummap_io io = *all;

		io.buf = (char *)all->buf + done;
		io.off += done;
		io.len = done < all->len ? min_size(all->len - done, map->seg_size) : 0;
		io.res = 0;
		if (io.len)
			io_run(map->backings[map->current].store, &io, 1, false, &map->stat.io);
		if (!io.res)
			note_written(map, i, i + 1, io.len);
		err = err ? err : io.res;
	}
	return err;
}

/* Writes as many of segments [first, end) as a call takes. Returns where it has ended. Sets *err to
 * the first error. */
static size_t write_changed(struct mapping *map, size_t first, size_t end, int *err)
{
	const struct backing *t = &map->backings[map->current];
	struct ummap_io io[MAX_WRITE_RUN_SEGMENTS];
	size_t begin[MAX_WRITE_RUN_SEGMENTS], stop[MAX_WRITE_RUN_SEGMENTS], i = first;
	unsigned n = 0;

	while (i < end && n < MAX_WRITE_RUN_SEGMENTS) {
		if (!must_write(map, i)) {
			i++;
			continue;
		}
		for (begin[n] = i++; i < end && must_write(map, i);)
			i++;
		stop[n] = i;
		io[n] = (struct ummap_io){ .op = UMMAP_IO_WRITE, .buf = map_slot(map, begin[n]),
			.len = count_bytes(map, begin[n], i),
			.off = t->offset + ((uint64_t)begin[n] << map->shift) };
		if (io[n].len)
			n++;
		else
			become_clean_all(map, begin[n], i);
	}
	if (n)
		write_requests(map, io, n, huge_blocks_has(map, first));
	map->sync.flush.due = true;
	for (unsigned k = 0; k < n; k++) {
		if (io[k].res && stop[k] - begin[k] > 1)
			io[k].res = write_one_by_one(map, begin[k], stop[k], &io[k]);
		else if (!io[k].res)
			note_written(map, begin[k], stop[k], io[k].len);
		*err = *err ? *err : io[k].res;
	}
	return i;
}

/* Makes segments [first, end), which are resident and locked, read-only by one call. */
static int forbid_stores(struct mapping *map, size_t first, size_t end)
{
	size_t n = end - first;
	int err = map->engine->protect(map->engine, map_slot(map, first),
				       map_slots_len(map, first, (unsigned)n), false);

	/* The kernel has split a huge page; or some of the rights may have changed, and faults
	 * restore them. */
	if (err || n << map->shift < HUGE_PAGE)
		huge_blocks_note_single(map, map_seg(map, first));
	for (size_t i = first; i < end && !err; i++)
		seg_change(map_seg(map, i), SEG_WRITABLE, 0);
	return err;
}

int writeback_stretch(struct mapping *map, size_t first, size_t end)
{
	int err, part = 0;

	in_progress++;
	err = forbid_stores(map, first, end);
	for (size_t i = first; i < end && !err; i++)
		map_await(map, map_seg(map, i));
	for (size_t i = first; i < end && !err;)
		i = write_changed(map, i, end, &part);
	/* No segment is left to be ended. */
	err = run_end(&(struct run){ .map = map }, err, part);
	in_progress--;
	writeback_note_end();
	return err;
}

static bool can_join_stretch(const struct seg *s)
{
	return seg_has(s, SEG_VALID | SEG_DIRTY) &&
	       !(seg_head(s) & (SEG_INACTIVE | SEG_DEVICE));
}

/* Locks the segments before `last` that are adjacent to segment i, which is locked, in its block of
 * a huge page. Returns their end. */
static size_t lock_stretch(struct mapping *map, size_t i, size_t last)
{
	size_t end = min_size(round_up(i + 1, HUGE_PAGE >> map->shift), last);

	while (++i < end) {
		struct seg *s = map_seg(map, i);

		if (!can_join_stretch(s) || !seg_trylock(s))
			break;
		if (!can_join_stretch(s)) {
			seg_unlock(s);
			break;
		}
	}
	return i;
}

static void unlock_stretch(struct mapping *map, size_t first, size_t end)
{
	while (end-- > first)
		map_unlock(map, end, map_seg(map, end));
}

/* ---- Scans ---- */

/* A scan of a mapping for segments to be written. */
struct scan {
	size_t first, last;
	uint64_t before;  /* segments that became dirty earlier are written; ms */
	uint64_t until;   /* no run begins later; ms */
	int err;          /* the first error */
	bool refused;     /* the last run found no space for any of its segments */
};

/* Writes a run from i on. Returns the number of segments that the scan need not try any more. Sets
 * *later if one of them remains to be written later. Each write to a full file system takes
 * milliseconds. So after a whole run was refused, only one segment of each huge page is tried,
 * until one is written. */
static size_t write_from(struct mapping *map, size_t i, struct scan *scan, bool *later)
{
	uint64_t written = map->stat.io.write_bytes;
	struct run run = { .map = map };
	struct seg *s = map_seg(map, i);
	size_t last = scan->refused ? i + 1 : scan->last, end;
	int err;

	if (seg_has(s, SEG_DIRTY) && seg_time(s) >= scan->before) {
		*later = true;
		return 1;
	}
	seg_lock(s);
	if (!seg_has(s, SEG_VALID) || !map_must_write(map, s)) {
		seg_unlock(s);
		return 1;
	}
	if (neighbors_come(map) && !map->writers && !map->engine->refuses_pinned &&
	    !map_in_order(map) && !commit_runs(map) && can_join_stretch(s)) {
		end = lock_stretch(map, i, last);
		err = writeback_stretch(map, i, end);
		unlock_stretch(map, i, end);
	} else {
		run_begin(&run, i, last, ANY_NEAR);
		end = run.at[run.n - 1] + 1;
		err = write_run(&run, false);
	}
	*later |= run.busy != 0 || err;
	scan->err = scan->err ? scan->err : err;
	if (scan->refused && stall_lacks_space(-err))
		return round_up(end, max_size(HUGE_PAGE >> map->shift, 1)) - i;
	scan->refused = stall_lacks_space(-err) && map->stat.io.write_bytes == written;
	return end - i;
}

/* The first segment of [i, end) that may have to be written; end: there is none. Looks at headers
 * without their locks. */
static size_t next_unwritten(const struct mapping *map, size_t i, size_t end)
{
	while (i < end) {
		const struct extent *e = map_extent(map, i);
		const struct seg *s = &e->segs[i - e->first];

		for (size_t stop = min_size(end, e->first + e->count); i < stop; i++, s++) {
			if (can_join_run(map, i, s, ANY_NEAR))
				return i;
		}
	}
	return end;
}

/* Writes a group of segments with one mark. Returns the first segment that was not looked at. */
static size_t write_group(struct mapping *map, size_t i, size_t end, struct scan *scan, bool *later)
{
	while ((i = next_unwritten(map, i, end)) < end) {
		i += write_from(map, i, scan, later);
		/* The background thread does not delay a thread that wants to be the only user. */
		if (i < end && ((scan->until < UINT64_MAX && sys_now() >= scan->until) ||
				(scan->before < UINT64_MAX && map_is_frozen(map)))) {
			*later = true;
			return i;
		}
	}
	/* The run may have passed the end of the group. The next group is still scanned as a
	 * whole. */
	return end;
}

int writeback_scan(struct mapping *map, size_t *at, size_t last, uint64_t before, uint64_t until)
{
	struct scan scan = { .first = *at, .last = last, .before = before, .until = until };
	size_t i;

	/* A scan removes a mark before it writes. Without the lock, another scan would find nothing
	 * to write, and its sync would not wait. */
	futex_lock(&map->sync.scan_lock);
	for (i = map_next_dirty(map, scan.first); i < last; i = map_next_dirty(map, i)) {
		size_t group = i & ~(((size_t)1 << MARK_GROUP_SHIFT) - 1);
		size_t end = min_size(group + ((size_t)1 << MARK_GROUP_SHIFT), map->segs);
		/* A group that is only partly in the range keeps its mark. */
		bool later = group < scan.first || end > last;

		end = min_size(end, last);
		if (!later)
			map_forget_dirty(map, group);
		i = write_group(map, i, end, &scan, &later);
		if (later)
			map_note_dirty(map, group);
		if (i < end)
			break;
	}
	futex_unlock(&map->sync.scan_lock);
	/* Other writes of the scan may have succeeded after the one that failed. */
	if (scan.err)
		map->sync.write_error = -scan.err;
	*at = min_size(i, last);
	return scan.err;
}

/* ---- Commits ---- */

int writeback_mark(struct mapping *map)
{
	int err = 0;

	for (size_t i = map_next_dirty(map, 0); i < map->segs && !err; i = map_next_dirty(map, i)) {
		struct run run = { .map = map };
		struct seg *s = map_seg(map, i);

		seg_lock(s);
		if (!seg_has(s, SEG_VALID | SEG_DIRTY)) {
			seg_unlock(s);
			i++;
			continue;
		}
		run_begin(&run, i, map->segs, NEIGHBOURS);
		err = make_readonly(&run);
		for (unsigned k = 0; k < run.n; k++) {
			/* Other processes see the mark, or their stores are waited for. */
			if (!err)
				seg_change(run.segs[k], 0, SEG_COMMIT);
			if (!err)
				map_await(map, run.segs[k]);
			map_unlock(map, run.at[k], run.segs[k]);
		}
		map->sync.commit_left += err ? 0 : run.n;
		i += run.n;
	}
	return err;
}

long writeback_commit(struct mapping *map, size_t *at)
{
	struct run run = { .map = map };
	int err;

	for (size_t i = map_next_dirty(map, *at); i < map->segs; i = map_next_dirty(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		if (!map_lock_if(map, i, s, commit_needs))
			continue;
		run_begin(&run, i, map->segs, OF_COMMIT);
		*at = run.at[run.n - 1] + 1;
		err = write_run(&run, false);
		return err ? err : (long)run.n << map->shift;
	}
	return 0;
}

bool writeback_keep_error(struct mapping *map, int err)
{
	int none = 0;

	return atomic_compare_exchange_strong(&map->sync.error, &none, err);
}

/* Moves the segment to the end of its list: storage may accept other segments. */
static void try_later(struct mapping *map, struct seg *s)
{
	if (seg_has(s, SEG_VALID | SEG_INACTIVE | SEG_DIRTY)) {
		cache_remove(&map->member, s);
		cache_deactivate(&map->member, s, INACTIVE_DIRTY);
	}
}

/* Locks the first one of the segments before s that can be written with it, and unlocks s; or
 * returns s. In a stream of stores that goes backward, the segments behind s are clean already.
 * After a failure, each try begins with another segment. One segment is locked all the time,
 * because the mapping may end otherwise. */
static struct seg *lock_first(struct mapping *map, struct seg *s)
{
	size_t most = writeback_error(map) ? 1 : writeback_run(map);
	size_t i = map_index(map, s), end = i;
	struct seg *first;

	while (end - i + 1 < most && i > 0 &&
	       can_join_run(map, i - 1, map_seg(map, i - 1), INACTIVE_NEIGHBOURS))
		i--;
	first = map_seg(map, i);
	if (i == end || !seg_trylock(first))
		return s;
	if (!can_join_run(map, i, first, INACTIVE_NEIGHBOURS)) {
		seg_unlock(first);
		return s;
	}
	seg_unlock(s);
	return first;
}

/* Writes a segment that is inactive and locked, with neighbours, and unlocks it. */
static bool write_inactive(struct mapping *map, struct seg *s)
{
	struct run run = { .map = map };
	int err;

	s = lock_first(map, s);
	if (commit_bars(map, s)) {
		seg_unlock(s);
		return false;
	}
	run_begin(&run, map_index(map, s), map->segs, INACTIVE_NEIGHBOURS);
	/* The first segment stays locked until the error is recorded: the mapping may end after
	 * that. */
	err = write_run(&run, true);
	if (err) {
		writeback_keep_error(map, err);
		stall_note_failure(map, err);
		try_later(map, s);
	}
	seg_unlock(s);
	return err == 0;
}

bool writeback_inactive(struct account *account, struct mapping *map)
{
	struct member *m;
	struct seg *s = cache_lock_dirty_inactive(account, map ? &map->member : NULL, sys_now(),
						  &m);

	return s && write_inactive(map_of(m), s);
}

uint32_t writeback_seen(void)
{
	return ended;
}

bool writeback_wait(uint32_t seen, bool commits)
{
	if (in_progress == 0 && !commits)
		return false;
	futex_wait(&ended, seen, MAX_WRITE_WAIT_MS);
	return true;
}

void writeback_forget(void)
{
	in_progress = 0;
}

static void clean_job(void *arg, uint64_t a, uint64_t b)
{
	struct mapping *map = arg;

	(void)a;
	(void)b;
	while (!map_is_frozen(map) && writeback_inactive(map_account(map), map))
		;
	map->sync.cleaners--;
	map_leave(map);
}

void writeback_behind(struct mapping *map)
{
	if (map->sync.cleaners >= MAX_WRITE_BEHIND_JOBS)
		return;
	map_use(map);
	map->sync.cleaners++;
	if (!worker_post(clean_job, map, 0, 0)) {
		map->sync.cleaners--;
		map_leave(map);
	}
}
