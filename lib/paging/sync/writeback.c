/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty -> clean. A segment is made read-only first and then written, under its lock: a store that happens during the
 * write waits and makes it dirty again, so it is in that write or in the next one. Stores of other processes
 * (peer/export.c) are waited for, and refused until it is dirty again. Other segments are written together with it:
 * neighbours, and, where the store takes several requests at a time, others not far away; they are only trylocked.
 * Never evicts, never loads.
 */
#include "paging/sync/writeback.h"

#include "engine/engine.h"
#include "paging/sync/flush.h"
#include "paging/fault/segment.h"
#include "base/spare.h"
#include "paging/fault/stall.h"
#include "paging/sync/twin.h"
#include "base/worker.h"

#include <string.h>

static _Atomic uint32_t under_way;
static _Atomic uint32_t ended;

/* Segments in ascending order, all locked, that leave together. */
struct run {
	struct mapping *map;
	size_t at[MAX_WRITE_RUN_SEGMENTS];
	unsigned n;
	uint32_t busy;             /* by place in `at`: may change meanwhile without a fault, and so stays dirty */
	uint32_t failed;           /* ... was not written as a whole */
	struct ummap_io io[MAX_WRITE_RUN_SEGMENTS];
	unsigned requests;
};

static bool belongs(const struct mapping *map, const struct seg *s, bool inactive_only)
{
	return seg_has(s, SEG_VALID) && map_must_write(map, s) &&
	       (!inactive_only || seg_has(s, SEG_INACTIVE | SEG_DIRTY));
}

/* Which others come along. */
enum kind { NEIGHBOURS, INACTIVE_NEIGHBOURS, ANY_NEAR };

size_t writeback_run(const struct mapping *map)
{
	size_t most = map->bulk ? MAX_WRITE_RUN_BYTES >> map->shift : 1;

	return min_size(max_size(most, 1), MAX_WRITE_RUN_SEGMENTS);
}

/* Begins with segment i, which is locked, and adds others before `last`. */
static void run_begin(struct run *run, size_t i, size_t last, enum kind kind)
{
	const struct mapping *map = run->map;
	size_t most = writeback_run(map), end = min_size(i + MAX_WRITE_RUN_SPAN, last);
	bool gaps = kind == ANY_NEAR && io_async(map->backings[map->current].store);
	bool inactive_only = kind == INACTIVE_NEIGHBOURS;

	run->n = 0;
	run->at[run->n++] = i++;
	for (; run->n < most && i < end; i++) {
		struct seg *s = map_seg(map, i);

		if (!belongs(map, s, inactive_only) && gaps)
			continue;
		if (!belongs(map, s, inactive_only) || !seg_trylock(s))
			break;
		if (!belongs(map, s, inactive_only)) {
			seg_unlock(s);
			break;
		}
		run->at[run->n++] = i;
	}
}

static struct seg *seg_of(const struct run *run, unsigned k)
{
	return map_seg(run->map, run->at[k]);
}

/* A page that the kernel works on can be stored to whatever rights it has. Where it goes back to the pool it is no such
 * page, and where accesses by the kernel wait for it to come back, it can. */
static bool stays_busy(struct mapping *map, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_DEVICE))
		return true;
	if (!map->engine->refuses_pinned || !seg_has(s, SEG_WRITABLE) || seg_pins(s))
		return false;
	cache_remove(&map->member, s);
	return seg_deactivate(map, i, s) < 0;
}

static void find_busy(struct run *run)
{
	for (unsigned k = 0; k < run->n; k++) {
		if (stays_busy(run->map, run->at[k], seg_of(run, k)))
			run->busy |= 1u << k;
	}
}

static bool is_busy(const struct run *run, unsigned k)
{
	return run->busy >> k & 1;
}

static bool loses_rights(const struct run *run, unsigned k)
{
	return seg_has(seg_of(run, k), SEG_WRITABLE) && !is_busy(run, k);
}

/* How many consecutive segments from the k-th on are mapped and lose their right to be stored to. */
static unsigned stretch(const struct run *run, unsigned k)
{
	unsigned n = 0;

	while (k + n < run->n && loses_rights(run, k + n) && run->at[k + n] == run->at[k] + n)
		n++;
	return n;
}

/* Step 2 of the cycle in STATES.md, for all segments of the run, with one call for each stretch of
 * resident segments. */
static int make_readonly(struct run *run)
{
	struct mapping *map = run->map;

	for (unsigned k = 0, n; k < run->n; k += n ? n : 1) {
		char *range = map_place(map, run->at[k]);
		size_t last, len;
		int err;

		n = stretch(run, k);
		if (!n)
			continue;
		last = run->at[k + n - 1];
		len = (size_t)(map_place(map, last) - range) + map_place_len(map, last);
		do
			err = map->engine->protect(map->engine, range, len, false);
		while (err == -ENOMEM && spare_give());
		if (err) {
			/* It may have got half-way. */
			map->engine->protect(map->engine, range, len, true);
			return err;
		}
		for (unsigned j = k; j < k + n; j++)
			seg_change(seg_of(run, j), SEG_WRITABLE, 0);
	}
	return 0;
}

/* Step 3: stores of other processes are part of this write, or find the segment clean. */
static void await_accessors(const struct run *run)
{
	for (unsigned k = 0; k < run->n; k++)
		map_await(run->map, seg_of(run, k));
}

/* Where the contents of segment i are. */
static char *contents(const struct mapping *map, size_t i, const struct seg *s)
{
	return seg_has(s, SEG_INACTIVE) ? frame_addr(s->frame) : map_place(map, i);
}

/* Whether only the stored bytes are written, because others write to the segment, too. One that migrates is written to
 * its new place as a whole. */
static bool leaves_in_parts(const struct run *run, unsigned k)
{
	return twin_has(run->map, run->at[k]) && seg_backing(seg_of(run, k)) == run->map->current;
}

/* Writes all of the run that leaves in parts: 0 or the first error. What was written of a segment that failed is
 * written again with the rest. */
static int write_parts(struct run *run)
{
	struct mapping *map = run->map;
	int err = 0;

	for (unsigned k = 0; k < run->n; k++) {
		size_t i = run->at[k];
		const char *buf = contents(map, i, seg_of(run, k));
		long end;

		if (!leaves_in_parts(run, k))
			continue;
		end = is_busy(run, k) ? twin_write_busy(map, i, buf) : twin_write(map, i, buf, run->io, MAX_WRITE_RUN_SEGMENTS);
		if (end > 0)
			map_extend_stored(map, ((uint64_t)i << map->shift) + (uint64_t)end);
		if (end < 0) {
			run->failed |= 1u << k;
			err = err ? err : (int)end;
		}
	}
	return err;
}

/* Where the store ends within the run, a segment is cut behind its last byte. What another one follows need not be: it
 * touches that one, and both are one request. */
static void fill_gaps(struct run *run)
{
	struct mapping *map = run->map;

	for (unsigned r = 0; r + 1 < run->requests; r++) {
		uint64_t next = run->io[r].off + map->seg_size;

		if (run->io[r + 1].off == next)
			run->io[r].len = map->seg_size;
	}
}

/* Requests for all that has bytes to write and leaves as a whole; io.owner is the segment. */
static void prepare(struct run *run)
{
	struct mapping *map = run->map;
	const struct backing *t = &map->backings[map->current];

	run->requests = 0;
	for (unsigned k = 0; k < run->n; k++) {
		struct seg *s = seg_of(run, k);
		size_t i = run->at[k];
		char *buf = contents(map, i, s);
		size_t len = leaves_in_parts(run, k) ? 0 : map_write_len(map, i, buf);

		if (len)
			run->io[run->requests++] = (struct ummap_io){
				.op = UMMAP_IO_WRITE, .buf = buf, .len = len,
				.off = t->offset + ((uint64_t)i << map->shift), .owner = s };
	}
	fill_gaps(run);
}

/* Step 6: the store has the segment. */
static void become_clean(struct mapping *map, size_t i, struct seg *s, bool busy)
{
	bool dirty = seg_has(s, SEG_DIRTY);

	seg_set_backing(s, map->current);
	seg_change(s, 0, SEG_STORED);
	/* Who may store at any moment, without a fault: it stays dirty until that is over. */
	if (busy)
		return;
	flush_note(map, s);
	if (!dirty)
		return; /* it has migrated */
	if (seg_has(s, SEG_INACTIVE)) {
		cache_remove(&map->member, s);
		seg_change(s, SEG_DIRTY, 0);
		cache_deactivate(&map->member, s, INACTIVE_CLEAN);
	} else {
		cache_touch(&map->member, s, UMMAP_EV_CLEANED);
		seg_change(s, SEG_DIRTY, 0);
	}
	twin_drop(map, i);
}

/* Sets the result of the last write. Faults read the field, so it is written only if it changes. */
static void note_result(struct mapping *map, int err)
{
	if (map->sync.write_error != -err)
		map->sync.write_error = -err;
}

/* err: nothing was written; part: the first error of what leaves in parts. */
static int run_end(struct run *run, int err, int part)
{
	struct mapping *map = run->map;
	unsigned request = 0;

	for (unsigned k = 0; k < run->n; k++) {
		struct seg *s = seg_of(run, k);
		const struct ummap_io *io = NULL;

		if (request < run->requests && run->io[request].owner == s)
			io = &run->io[request++];
		if (err == 0 && io && io->res == 0)
			map_extend_stored(map, ((uint64_t)run->at[k] << map->shift) + io->len);
		if (err == 0 && (!io || io->res == 0) && !(run->failed >> k & 1))
			become_clean(map, run->at[k], s, is_busy(run, k));
		/* Half of it may have been written, to where it is to be read from: memory alone has it now. */
		else if (err == 0 && map_in_order(map) && !seg_has(s, SEG_DIRTY))
			flush_again(map, run->at[k], s);
	}
	for (unsigned i = 0; i < run->requests && !err; i++)
		part = part ? part : run->io[i].res;
	if (!err)
		note_result(map, part);
	err = err ? err : part;
	if (!map_in_order(map))
		map->member.retry = err ? sys_now() + WRITE_RETRY_MS : 0;
	return err;
}

/* Writes the run and unlocks all of it, but the first if `keep`: the mapping may end when none is locked. */
static int write_run(struct run *run, bool keep)
{
	struct mapping *map = run->map;
	int err, part = 0;

	under_way++;
	find_busy(run);
	err = make_readonly(run);
	if (!err) {
		await_accessors(run);
		/* Step 4. */
		part = write_parts(run);
		prepare(run);
		if (run->requests)
			io_run(map->backings[map->current].store, run->io, run->requests, map->bulk, &map->stat.io);
		/* Step 5, after the write: a flush that ran meanwhile did not cover it. */
		map->sync.flush.due = true;
	}
	err = run_end(run, err, part);
	for (unsigned i = run->n; i-- > (keep ? 1 : 0);)
		seg_unlock(seg_of(run, i));
	under_way--;
	ended++;
	futex_wake(&ended, INT32_MAX);
	return err;
}

int writeback_locked(struct mapping *map, size_t i, size_t last)
{
	struct run run = { .map = map };

	/* In order, without gaps: contents may be moving within their file. */
	run_begin(&run, i, last, NEIGHBOURS);
	return write_run(&run, true);
}

/* Writes from i on; returns how many segments it went past, or -errno. *later: one was left for later. */
static long write_from(struct mapping *map, size_t i, size_t last, uint64_t before, bool *later)
{
	struct run run = { .map = map };
	struct seg *s = map_seg(map, i);
	int err;

	if (seg_has(s, SEG_DIRTY) && seg_time(s) >= before) {
		*later = true;
		return 1;
	}
	seg_lock(s);
	if (!seg_has(s, SEG_VALID) || !map_must_write(map, s)) {
		seg_unlock(s);
		return 1;
	}
	run_begin(&run, i, last, ANY_NEAR);
	err = write_run(&run, false);
	*later |= run.busy != 0;
	return err ? err : (long)(run.at[run.n - 1] + 1 - i);
}

/* What to write of a mapping. */
struct scan {
	size_t first, last;
	uint64_t before;  /* changed since before then */
	uint64_t until;   /* no run begins later */
	int err;          /* the first error */
};

/* The first segment of [i, end) that may have to be written; end: there is none. Looks at headers
 * without their locks. */
static size_t next_unwritten(const struct mapping *map, size_t i, size_t end)
{
	while (i < end) {
		const struct extent *e = map_extent(map, i);
		const struct seg *s = &e->segs[i - e->first];

		for (size_t stop = min_size(end, e->first + e->count); i < stop; i++, s++) {
			if (belongs(map, s, false))
				return i;
		}
	}
	return end;
}

/* Writes a group of segments with one mark. Returns the first segment that was not looked at. */
static size_t write_group(struct mapping *map, size_t i, size_t end, struct scan *scan, bool *later)
{
	for (; (i = next_unwritten(map, i, end)) < end;) {
		long n;

		n = write_from(map, i, scan->last, scan->before, later);
		if (n < 0) {
			/* What lies behind may still be written. */
			*later = true;
			scan->err = scan->err ? scan->err : (int)n;
			n = 1;
		}
		i += (size_t)n;
		if (i < end && scan->until < UINT64_MAX && sys_now() >= scan->until) {
			*later = true;
			return i;
		}
	}
	/* A run may have gone on into the next group; that one's mark still wants a look at all of it. */
	return end;
}

/* Says how far it came. */
static size_t write_marked(struct mapping *map, struct scan *scan)
{
	size_t i;

	/* While a scan has taken a mark off, another must not believe that there is nothing to write. */
	futex_lock(&map->sync.scan_lock);
	for (i = map_next_dirty(map, scan->first); i < scan->last; i = map_next_dirty(map, i)) {
		size_t group = i & ~(((size_t)1 << MARK_GROUP_SHIFT) - 1);
		size_t end = min_size(group + ((size_t)1 << MARK_GROUP_SHIFT), map->segs);
		/* A group that is only partly asked for keeps its mark. */
		bool later = group < scan->first || end > scan->last;

		end = min_size(end, scan->last);
		if (!later)
			map_forget_dirty(map, group);
		i = write_group(map, i, end, scan, &later);
		if (later)
			map_note_dirty(map, group);
		if (i < end)
			break;
	}
	futex_unlock(&map->sync.scan_lock);
	/* Other writes of the scan may have succeeded after the one that failed. */
	if (scan->err)
		note_result(map, scan->err);
	return min_size(i, scan->last);
}

int writeback_range(struct mapping *map, size_t first, size_t last, uint64_t before)
{
	struct scan scan = { first, last, before, UINT64_MAX, 0 };

	write_marked(map, &scan);
	return scan.err;
}

int writeback_some(struct mapping *map, size_t *at, size_t last, uint64_t until)
{
	struct scan scan = { *at, last, UINT64_MAX, until, 0 };

	*at = write_marked(map, &scan);
	return scan.err;
}

bool writeback_keep_error(struct mapping *map, int err)
{
	int none = 0;

	return atomic_compare_exchange_strong(&map->sync.error, &none, err);
}

/* Storage may take other segments: the next attempt is made with another one. */
static void try_later(struct mapping *map, struct seg *s)
{
	if (seg_has(s, SEG_VALID | SEG_INACTIVE | SEG_DIRTY)) {
		cache_remove(&map->member, s);
		cache_deactivate(&map->member, s, INACTIVE_DIRTY);
	}
}

/* Writes a segment that is inactive, and locked, with neighbours. */
static bool write_inactive(struct mapping *map, struct seg *s)
{
	struct run run = { .map = map };
	int err;

	run_begin(&run, map_index(map, s), map->segs, INACTIVE_NEIGHBOURS);
	/* The first stays locked while the error is kept: the mapping may end after that. */
	err = write_run(&run, true);
	if (err) {
		writeback_keep_error(map, err);
		stall_note_failure(map, err);
		try_later(map, s);
	}
	seg_unlock(s);
	return err == 0;
}

bool writeback_inactive(struct mapping *map)
{
	struct member *m = &map->member;
	struct seg *s = cache_lock_dirty_inactive(map_account(map), m, sys_now(), &m);

	return s && write_inactive(map, s);
}

bool writeback_account(struct account *account)
{
	struct member *m;
	struct seg *s = cache_lock_dirty_inactive(account, NULL, sys_now(), &m);

	return s && write_inactive(map_of(m), s);
}

bool writeback_wait(void)
{
	uint32_t seen = ended;

	if (under_way == 0)
		return false;
	futex_wait(&ended, seen, MAX_WRITE_WAIT_MS);
	return true;
}

void writeback_forget(void)
{
	under_way = 0;
}

int writeback_take_error(struct mapping *map)
{
	return atomic_exchange(&map->sync.error, 0);
}

int writeback_sync(struct mapping *map, size_t first, size_t last)
{
	uint64_t failed;
	int err;

	/* Somebody else's flush may fail between our write and our flush, and the next one succeed for nothing:
	 * what it brought into doubt has to be written again. */
	do {
		failed = map->sync.flush.failed;
		err = writeback_range(map, first, last, UINT64_MAX);
		if (!err)
			err = flush(map);
	} while (!err && failed != map->sync.flush.failed);
	/* All that could be written is durable; but that is not all of the mapping. */
	return flush_has_lost(map) ? -EIO : err;
}

static void clean_job(void *arg, uint64_t a, uint64_t b)
{
	struct mapping *map = arg;

	(void)a;
	(void)b;
	while (!map_is_frozen(map) && writeback_inactive(map))
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
