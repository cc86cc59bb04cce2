/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dirty -> clean. A segment is made read-only first and written then, under its lock: a store that happens
 * during the write waits and makes it dirty again, so it is in that write or in the next one. Stores of other
 * processes (peer.c) are waited for, and refused until it is dirty again. Neighbours
 * are locked by trylock only, and leave together. Never evicts, never loads.
 */
#include "writeback.h"

#include "engine.h"
#include "standby.h"
#include "worker.h"

#include <string.h>

#define RUN_MAX 32 /* it stands on the stack of a signal handler */
#define RUN_BYTES ((size_t)16 << 20)
/* Jobs that clean one mapping at the same time. */
#define CLEANERS_MAX 2
/* After a write has failed, the segment is left alone for so long, unless somebody asks. */
#define RETRY_MS 1000

static _Atomic uint32_t under_way;
static _Atomic uint32_t ended;

/* Neighbouring segments, all locked, that leave together. */
struct run {
	struct set *set;
	size_t first;
	unsigned n;
	uint32_t busy;             /* by segment: may change meanwhile without a fault, and so stays changed */
	struct ummap_io io[RUN_MAX];
	unsigned requests;
};

static bool belongs(const struct set *set, const struct seg *s, bool standby_only)
{
	return seg_has(s, SEG_VALID) && set_must_write(set, s) &&
	       (!standby_only || seg_has(s, SEG_STANDBY | SEG_DIRTY));
}

/* Adds the neighbours of run->first, which is locked. */
static void gather(struct run *run, size_t last, bool standby_only)
{
	const struct set *set = run->set;
	size_t most = set->bulk ? max_size(RUN_BYTES >> set->shift, 1) : 1;

	most = min_size(min_size(most, RUN_MAX), last - run->first);
	for (run->n = 1; run->n < most; run->n++) {
		struct seg *s = set_seg(set, run->first + run->n);

		if (!belongs(set, s, standby_only) || !seg_trylock(s))
			break;
		if (!belongs(set, s, standby_only)) {
			seg_unlock(s);
			break;
		}
	}
}

/* A page that the kernel works on can be stored to whatever rights it has. Where it goes home it is no such page,
 * and where accesses by the kernel wait for it to come back, it can. */
static bool stays_busy(struct set *set, size_t i, struct seg *s)
{
	if (seg_has(s, SEG_DEVICE))
		return true;
	if (set->engine == ENGINE_SEGV || !seg_has(s, SEG_WRITABLE) || seg_pins(s))
		return false;
	cache_remove(&set->member, s);
	return standby_enter(set, i, s) < 0;
}

static void find_busy(struct run *run)
{
	for (unsigned k = 0; k < run->n; k++) {
		if (stays_busy(run->set, run->first + k, set_seg(run->set, run->first + k)))
			run->busy |= 1u << k;
	}
}

static bool is_busy(const struct run *run, size_t i)
{
	return run->busy >> (i - run->first) & 1;
}

static bool loses_rights(const struct run *run, size_t i)
{
	return seg_has(set_seg(run->set, i), SEG_WRITABLE) && !is_busy(run, i);
}

/* Takes the right to store from all of the run: one call for each stretch in the view. */
static int make_readonly(struct run *run)
{
	struct set *set = run->set;

	for (size_t i = run->first, end = i + run->n, k; i < end; i = k + 1) {
		for (k = i; k < end && loses_rights(run, k); k++)
			;
		if (k > i) {
			size_t len = (size_t)(set_view(set, k - 1) - set_view(set, i)) + set_view_len(set, k - 1);
			int err = engine_protect(set->engine, set_view(set, i), len, false);

			if (err) {
				/* It may have got half-way. */
				engine_protect(set->engine, set_view(set, i), len, true);
				return err;
			}
		}
		for (; i < k; i++)
			seg_change(set_seg(set, i), SEG_WRITABLE, 0);
	}
	return 0;
}

/* What other processes store is in this write, or finds the segment clean. */
static void await_visitors(const struct run *run)
{
	for (unsigned k = 0; k < run->n; k++)
		set_await(run->set, set_seg(run->set, run->first + k));
}

/* Requests for all that has bytes to write; io.owner is the segment. */
static void prepare(struct run *run)
{
	struct set *set = run->set;
	const struct target *t = &set->targets[set->current];

	run->requests = 0;
	for (size_t i = run->first; i < run->first + run->n; i++) {
		struct seg *s = set_seg(set, i);
		char *buf = seg_has(s, SEG_STANDBY) ? frame_home(s->frame) : set_view(set, i);
		size_t len = set_write_len(set, i, buf);

		if (len)
			run->io[run->requests++] = (struct ummap_io){
				.op = UMMAP_IO_WRITE, .buf = buf, .len = len,
				.off = t->offset + ((uint64_t)i << set->shift), .owner = s };
	}
}

static void extend_stored(struct set *set, uint64_t end)
{
	uint64_t stored = set->stored;

	while (end > stored && !atomic_compare_exchange_weak(&set->stored, &stored, end))
		;
}

/* The segment is in storage now. */
static void become_clean(struct set *set, struct seg *s, bool busy)
{
	uint64_t dirty = seg_head(s) & SEG_DIRTY;

	seg_set_target(s, set->current);
	seg_change(s, 0, SEG_STORED);
	/* Who may store at any moment, without a fault: it stays changed until that is over. */
	if (!dirty || busy)
		return;
	/* The time of a clean segment says which flush makes it durable. */
	seg_set_time(s, set->generation);
	if (seg_has(s, SEG_STANDBY)) {
		cache_remove(&set->member, s);
		seg_change(s, SEG_DIRTY, 0);
		cache_stand(&set->member, s, STANDBY_CLEAN);
	} else {
		cache_touch(&set->member, s, UMMAP_EV_CLEANED);
		seg_change(s, SEG_DIRTY, 0);
	}
}

static int settle(struct run *run, int err)
{
	struct set *set = run->set;
	unsigned request = 0;

	for (size_t i = run->first; i < run->first + run->n; i++) {
		struct seg *s = set_seg(set, i);
		const struct ummap_io *io = NULL;

		if (request < run->requests && run->io[request].owner == s)
			io = &run->io[request++];
		if (err == 0 && io && io->res == 0)
			extend_stored(set, ((uint64_t)i << set->shift) + io->len);
		if (err == 0 && (!io || io->res == 0))
			become_clean(set, s, is_busy(run, i));
	}
	for (unsigned i = 0; i < run->requests && !err; i++)
		err = run->io[i].res;
	set->member.retry = err ? sys_now() + RETRY_MS : 0;
	return err;
}

/* Writes the run and unlocks all of it, but the first if `keep`: the set may end when none is locked. */
static int write_run(struct run *run, bool keep)
{
	struct set *set = run->set;
	int err;

	under_way++;
	find_busy(run);
	err = make_readonly(run);
	if (!err) {
		await_visitors(run);
		prepare(run);
		if (run->requests)
			io_run(set->targets[set->current].store, run->io, run->requests, set->bulk, &set->stat.io);
		/* Only now: a flush that ran meanwhile did not cover it. */
		set->unflushed = true;
	}
	err = settle(run, err);
	for (unsigned i = run->n; i-- > (keep ? 1 : 0);)
		seg_unlock(set_seg(set, run->first + i));
	under_way--;
	ended++;
	sys_wake(&ended, INT32_MAX);
	return err;
}

int writeback_locked(struct set *set, size_t i, size_t last)
{
	struct run run = { .set = set, .first = i };

	gather(&run, last, false);
	return write_run(&run, true);
}

/* Writes from i on; returns how many segments it went past, or -errno. *later: one was left for later. */
static long write_from(struct set *set, size_t i, size_t last, uint64_t before, bool *later)
{
	struct run run = { .set = set, .first = i };
	struct seg *s = set_seg(set, i);
	int err;

	if (!seg_has(s, SEG_VALID) || !set_must_write(set, s))
		return 1;
	if (seg_has(s, SEG_DIRTY) && seg_time(s) >= before) {
		*later = true;
		return 1;
	}
	seg_lock(s);
	if (!seg_has(s, SEG_VALID) || !set_must_write(set, s)) {
		seg_unlock(s);
		return 1;
	}
	gather(&run, last, false);
	err = write_run(&run, false);
	*later |= run.busy != 0;
	return err ? err : (long)run.n;
}

/* One group of segments between two marks. *err: the first error. */
static void write_group(struct set *set, size_t i, size_t end, size_t last, uint64_t before, bool *later, int *err)
{
	while (i < end) {
		long n = write_from(set, i, last, before, later);

		if (n < 0) {
			/* What lies behind may still be written. */
			*later = true;
			*err = *err ? *err : (int)n;
			n = 1;
		}
		i += (size_t)n;
	}
}

int writeback_range(struct set *set, size_t first, size_t last, uint64_t before)
{
	int err = 0;

	/* While a scan has taken a mark off, another must not believe that there is nothing to write. */
	futex_lock(&set->scan_lock);
	for (size_t i = set_next(set, set->dirty, first); i < last; i = set_next(set, set->dirty, i)) {
		size_t group = i & ~(((size_t)1 << MARK_SHIFT) - 1);
		size_t end = min_size(group + ((size_t)1 << MARK_SHIFT), set->segs);
		/* A group that is only partly asked for keeps its mark. */
		bool later = group < first || end > last;

		end = min_size(end, last);
		if (!later)
			set_unmark(set->dirty, group);
		write_group(set, i, end, last, before, &later, &err);
		if (later)
			set_mark(set->dirty, group);
		/* A run may have gone on into the next group; that one's mark still wants a look at all of it. */
		i = end;
	}
	futex_unlock(&set->scan_lock);
	return err;
}

/* A flush failed, and nobody can tell what it lost: all that was written since the last good one, and is still
 * in memory, counts as changed again. */
static void doubt(struct set *set, uint64_t generation)
{
	for (size_t i = set_next(set, set->touched, 0); i < set->segs; i = set_next(set, set->touched, i + 1)) {
		struct seg *s = set_seg(set, i);

		seg_lock(s);
		if (seg_has(s, SEG_VALID | SEG_STORED) && !seg_has(s, SEG_DIRTY) && !seg_has(s, SEG_AHEAD) &&
		    seg_time(s) == (generation & SEG_TIME_MASK)) {
			if (seg_has(s, SEG_STANDBY))
				cache_remove(&set->member, s);
			seg_change(s, 0, SEG_DIRTY);
			seg_set_time(s, sys_now());
			set_mark(set->dirty, i);
			if (seg_has(s, SEG_STANDBY))
				cache_stand(&set->member, s, STANDBY_DIRTY);
			else
				cache_touch(&set->member, s, UMMAP_EV_DIRTIED);
		}
		seg_unlock(s);
	}
}

int writeback_flush(struct set *set)
{
	uint64_t generation;
	int err = 0;

	/* Whoever comes second waits for the flush that the first has begun. */
	futex_lock(&set->flush_lock);
	if (atomic_exchange(&set->unflushed, false)) {
		generation = set->generation++;
		err = io_flush(set->targets[set->current].store, &set->stat.io);
		if (err) {
			set->unflushed = true;
			doubt(set, generation);
			set->failed_flushes++;
		}
	}
	futex_unlock(&set->flush_lock);
	return err;
}

/* Writes a segment that is on standby, and locked, with neighbours. */
static bool write_standby(struct set *set, struct seg *s)
{
	struct run run = { .set = set, .first = set_index(set, s) };
	int err;

	gather(&run, set->segs, true);
	/* The first stays locked while the error is kept: the set may end after that. */
	err = write_run(&run, true);
	if (err) {
		int none = 0;

		atomic_compare_exchange_strong(&set->error, &none, err);
	}
	seg_unlock(s);
	return err == 0;
}

bool writeback_standby(struct set *set)
{
	struct seg *s = cache_unwritten(&set->member, sys_now());

	return s && write_standby(set, s);
}

bool writeback_share(struct share *share)
{
	struct member *m;
	struct seg *s = cache_unwritten_any(share, sys_now(), &m);

	return s && write_standby(set_of(m), s);
}

bool writeback_wait(void)
{
	uint32_t seen = ended;

	if (under_way == 0)
		return false;
	sys_wait(&ended, seen, 100);
	return true;
}

void writeback_forget(void)
{
	under_way = 0;
}

int writeback_take_error(struct set *set)
{
	return atomic_exchange(&set->error, 0);
}

int writeback_sync(struct set *set, size_t first, size_t last)
{
	uint64_t failed;
	int err;

	/* Somebody else's flush may fail between our write and our flush, and the next one succeed for nothing:
	 * what it brought into doubt has to be written again. */
	do {
		failed = set->failed_flushes;
		err = writeback_range(set, first, last, UINT64_MAX);
		if (!err)
			err = writeback_flush(set);
	} while (!err && failed != set->failed_flushes);
	return err;
}

static void clean_job(void *arg, uint64_t a, uint64_t b)
{
	struct set *set = arg;

	(void)a;
	(void)b;
	while (!set->frozen && writeback_standby(set))
		;
	set->cleaners--;
	set_put(set);
}

void writeback_behind(struct set *set)
{
	if (set->cleaners >= CLEANERS_MAX)
		return;
	set->users++;
	set->cleaners++;
	if (!worker_post(clean_job, set, 0, 0)) {
		set->cleaners--;
		set_put(set);
	}
}
