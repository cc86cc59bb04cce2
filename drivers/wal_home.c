/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way home of what was committed: the newest contents of each block, in the order of the store, then a flush of the
 * store, then the tail of the log, then the index, and when nobody reads the old places any more their room (wal_log.h has
 * the orders). Begins when nothing was committed for a second, or when much has gathered: what is written again meanwhile
 * goes home once.
 */
#include "wal.h"

#include "common/futex.h"
#include "keys.h"
#include "thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MUCH ((uint64_t)64 << 20)    /* bytes in the log; or a quarter of its limit */
#define REST_MS 1000

/* ---- Readers of the log ---- */

unsigned wal_enter(struct wal *w)
{
	unsigned ticket = w->counting;

	w->readers[ticket]++;
	return ticket;
}

void wal_leave(struct wal *w, unsigned ticket)
{
	w->readers[ticket]--;
}

/* Until all that entered before have left. Twice, because one may have seen the number just before it was changed. */
static void wait_for_readers(struct wal *w)
{
	const struct timespec pause = { 0, 50000 };

	for (int i = 0; i < 2; i++) {
		unsigned before = w->counting;

		w->counting = !before;
		while (w->readers[before] > 0)
			nanosleep(&pause, NULL);
	}
}

/* ---- A pass ---- */

/* A record that is brought home. */
struct source {
	uint64_t place;            /* of its first block */
	uint64_t data;             /* sum of all of them */
	uint32_t blocks;
	bool whole;                /* they are what was written: has been seen */
};

struct flight {
	struct ummap_io io;
	char *buf;
	bool flying;
};

struct batch {
	struct blockmap places;    /* the newest one of each block */
	struct source *sources;    /* in the order of the log */
	size_t n, room;
	struct flight flights[WAL_FLIGHTS];
	unsigned flying;
};

static void begin_batch(struct wal *w, struct batch *b)
{
	memset(b, 0, sizeof(*b));
	for (size_t i = 0; i < WAL_FLIGHTS; i++)
		b->flights[i].buf = w->buffer + i * WAL_RUN;
}

static void end_batch(struct batch *b)
{
	blockmap_free(&b->places);
	free(b->sources);
}

static int note_source(struct batch *b, const struct wal_record *r)
{
	size_t room = b->room ? 2 * b->room : 64;
	struct source *more;

	if (b->n == b->room) {
		more = realloc(b->sources, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		b->sources = more;
		b->room = room;
	}
	b->sources[b->n++] = (struct source){ r->place + sizeof(*r), r->data, r->blocks, false };
	return 0;
}

static int note_record(void *arg, const struct wal_record *r)
{
	struct batch *b = arg;
	int err;

	if (!r->blocks)
		return 0;
	err = blockmap_reserve(&b->places, r->where, r->blocks);
	if (!err)
		err = note_source(b, r);
	for (uint64_t k = 0; k < r->blocks && !err; k++)
		blockmap_set(&b->places, r->where + k, r->place + sizeof(*r) + k * WAL_BLOCK);
	return err;
}

/* The one that has the block at this place. */
static struct source *source_of(struct batch *b, uint64_t place)
{
	size_t low = 0, high = b->n;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (b->sources[middle].place <= place)
			low = middle;
		else
			high = middle;
	}
	return &b->sources[low];
}

/* Blocks of one record. Nothing of it goes home before all of it has been seen to be whole. */
static int fetch(struct wal *w, struct batch *b, uint64_t place, uint64_t blocks, char *buf)
{
	struct source *s = source_of(b, place);
	char *whole = blocks == s->blocks ? buf : w->buffer + WAL_FLIGHTS * WAL_RUN;
	int err;

	if (s->whole)
		return side_read(&w->log.file, buf, blocks * WAL_BLOCK, place);
	err = side_read(&w->log.file, whole, s->blocks * WAL_BLOCK, s->place);
	if (err)
		return err;
	if (!wal_is_whole(&w->log, whole, s->blocks, s->data))
		return -EBADMSG;
	s->whole = true;
	if (whole != buf)
		memcpy(buf, whole + (place - s->place), blocks * WAL_BLOCK);
	return 0;
}

/* Blocks from `first` on that are neighbours in the store, as far as there is room for all that a record has of them. */
static int collect(struct wal *w, struct batch *b, uint64_t first, char *buf, uint64_t *n)
{
	int err = 0;

	for (*n = 0; !err;) {
		uint64_t place, run = blockmap_run(&b->places, first + *n, WAL_BLOCKS_MAX, WAL_BLOCK, &place);

		if (!place || run > WAL_BLOCKS_MAX - *n)
			return 0;
		err = fetch(w, b, place, run, buf + *n * WAL_BLOCK);
		*n += run;
	}
	return err;
}

/* Waits for at least so many requests. */
static int land(struct wal *w, struct batch *b, unsigned min)
{
	struct ummap_io *done[WAL_FLIGHTS];
	int got = behind_reap(&w->home, done, WAL_FLIGHTS, min), err = 0;

	/* A driver that fails here says nothing about any of them. */
	if (got < 0)
		b->flying = 0;
	for (int i = 0; i < got; i++) {
		((struct flight *)done[i]->owner)->flying = false;
		b->flying--;
		if (done[i]->res)
			err = done[i]->res;
	}
	return got < 0 ? got : err;
}

static int take_flight(struct wal *w, struct batch *b, struct flight **f)
{
	int err = b->flying == WAL_FLIGHTS ? land(w, b, 1) : 0;

	for (*f = b->flights; !err && (*f)->flying;)
		++*f;
	return err;
}

static int start(struct wal *w, struct batch *b, struct flight *f, uint64_t off, size_t len)
{
	int got = 0;

	f->io = (struct ummap_io){ .op = UMMAP_IO_WRITE, .buf = f->buf, .len = len, .off = off, .owner = f };
	if (w->async)
		got = behind_submit(&w->home, &f->io);
	if (got == 0)
		return behind_write(&w->home, f->buf, len, off);
	f->flying = got == 1;
	b->flying += f->flying;
	return got < 0 ? got : 0;
}

static int write_blocks(struct wal *w, struct batch *b, uint64_t size)
{
	uint64_t block = 0, place, n = 0;
	int err = 0, late;

	for (; !err && blockmap_next(&b->places, &block, &place); block += n) {
		uint64_t off = block * WAL_BLOCK, len;
		struct flight *f;

		err = take_flight(w, b, &f);
		if (!err)
			err = collect(w, b, block, f->buf, &n);
		len = n * WAL_BLOCK;
		if (!err && off < size)
			err = start(w, b, f, off, len < size - off ? len : size - off);
	}
	while (b->flying > 0) {
		late = land(w, b, b->flying);
		err = err ? err : late;
	}
	return err;
}

/* A store that has become longer than anything that was written to it. */
static int lengthen(struct wal *w, uint64_t size)
{
	uint64_t now;
	int err = behind_size(&w->home, &now);

	if (err || now >= size || !w->grows)
		return err;
	err = behind_resize(&w->home, size);
	return err == -EOPNOTSUPP ? behind_write(&w->home, "", 1, size - 1) : err;
}

static void drop_places(struct wal *w, struct batch *b)
{
	uint64_t block = 0, place;

	for (; blockmap_next(&b->places, &block, &place); block++)
		blockmap_drop(&w->index, block, place);
}

/* ---- The length of the log's file ---- */

#define LEAST_BOUND ((uint64_t)256 << 20)   /* bytes */
#define BOUND_FACTOR 4                      /* times the size of the store */
#define MAX_MOVED_BYTES ((uint64_t)1 << 30) /* writers wait while records move */

uint64_t wal_fixed_bound;

uint64_t wal_bound(const struct wal *w)
{
	uint64_t size = w->size,
		 most = size > w->log.limit / BOUND_FACTOR ? w->log.limit : BOUND_FACTOR * size;

	if (wal_fixed_bound)
		return wal_fixed_bound;
	most = most < LEAST_BOUND ? LEAST_BOUND : most;
	return most < w->log.limit ? most : w->log.limit;
}

static void shift_index(struct wal *w, uint64_t shift)
{
	uint64_t block = 0, place;

	for (; blockmap_next(&w->index, &block, &place); block++)
		blockmap_set(&w->index, block, place - shift);
}

/* Makes the log's file shorter. The caller holds the log's lock. A log that keeps commits is never
 * empty, so it does not begin anew. Instead, the records of the kept commits move to the front,
 * where earlier records were. This happens when the file has half the size of its bound, because as
 * much again may be appended until the next pass. */
static int shorten(struct wal *w)
{
	struct wal_log *l = &w->log;
	uint64_t live = l->end.at - l->tail, shift;
	int err;

	if (l->end.at < wal_bound(w) / 2 || live > l->tail - WAL_START || live > MAX_MOVED_BYTES)
		return 0;
	err = wal_move_to_front(l, &shift);
	if (err)
		return err;
	shift_index(w, shift);
	wait_for_readers(w);
	side_resize(&l->file, l->end.at);
	return 0;
}

static int give_back_room(struct wal *w, const struct wal_spot *spot)
{
	struct wal_log *l = &w->log;
	uint64_t from = l->tail;
	bool empty;
	int err = 0;

	futex_lock(&l->lock);
	empty = wal_is_empty(l);
	if (empty)
		err = wal_restart(l);
	else
		l->tail = spot->at;
	if (!empty)
		side_punch(&l->file, from, spot->at - from);
	if (!empty)
		err = shorten(w);
	futex_unlock(&l->lock);
	w->freed++;
	return err;
}

static int bring(struct wal *w, struct batch *b, const struct wal_spot *due)
{
	int err = wal_each(&w->log, due->at, note_record, b);

	if (!err)
		err = write_blocks(w, b, due->size);
	if (!err)
		err = lengthen(w, due->size);
	if (!err)
		err = behind_flush(&w->home, 0, UINT64_MAX);
	if (err > 0)
		err = -err;
	if (!err)
		err = wal_advance(&w->log, due);
	if (err)
		return err;
	drop_places(w, b);
	wait_for_readers(w);
	return give_back_room(w, due);
}

int wal_bring_home(struct wal *w)
{
	struct wal_spot due;
	struct batch b;
	bool any;
	int err;

	futex_lock(&w->log.lock);
	any = wal_due(&w->log, &due);
	futex_unlock(&w->log.lock);
	if (!any)
		return 0;
	begin_batch(w, &b);
	err = bring(w, &b, &due);
	end_batch(&b);
	return err;
}

/* ---- The thread ---- */

static uint64_t waiting_bytes(struct wal *w)
{
	struct wal_spot due;
	uint64_t bytes = 0;

	futex_lock(&w->log.lock);
	if (wal_due(&w->log, &due))
		bytes = due.at - w->log.tail;
	futex_unlock(&w->log.lock);
	return bytes;
}

static uint64_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec;
}

/* What fails is tried again when there is news; all of it is in the log. */
static void bring_home_or_tell(struct wal *w)
{
	int err = wal_bring_home(w);

	if (err && !w->told)
		notice_give(&w->notice, "wal+: cannot apply the commits of the log '%.150s' to the "
			    "store: %s. They stay in the log, which grows until they are applied",
			    w->log.file.path, strerror(-err));
	w->told = err != 0;
	w->failed_at = err ? now_s() + 1 : 0;
}

static void give_notice(struct wal *w)
{
	uint8_t untold = WAL_FULL_UNTOLD;

	if (atomic_compare_exchange_strong(&w->full, &untold, WAL_FULL_TOLD))
		notice_give(&w->notice, "wal+: cannot write to the log '%.150s': it has reached "
			    "wal.size=%ju, and the changes between two syncs do not fit. Writes "
			    "fail until they do, and nothing is lost. Try to sync more often, or a "
			    "larger wal.size", w->log.file.path, (uintmax_t)w->log.limit);
}

static void *run(void *arg)
{
	struct wal *w = arg;
	uint64_t much = w->log.limit / 4 < MUCH ? w->log.limit / 4 : MUCH, asked = 0;
	uint32_t seen = w->word - 1; /* what was found when it was opened is news */

	for (;;) {
		/* The word comes first: what is said after it is read ends the wait. */
		uint32_t now = w->word;
		bool quiet = seen == now;
		uint64_t bytes, now_asked;

		give_notice(w);
		if (w->stop)
			return NULL;
		seen = now;
		bytes = waiting_bytes(w);
		now_asked = w->asked;
		if (now_asked != asked || (bytes && (quiet || bytes >= much))) {
			asked = now_asked;
			futex_lock(&w->passing);
			if (!w->stop)
				bring_home_or_tell(w);
			futex_unlock(&w->passing);
			w->served++;
			futex_wake(&w->served, INT32_MAX);
			bytes = 0;
		}
		futex_wait(&w->word, seen, bytes ? REST_MS : -1);
	}
}

static void wake_thread(struct wal *w)
{
	w->word++;
	futex_wake(&w->word, 1);
}

void wal_tell(struct wal *w)
{
	wake_thread(w);
}

/* The caller may be a signal handler. */
void wal_tell_full(struct wal *w)
{
	uint8_t fits = WAL_FITS;

	if (atomic_compare_exchange_strong(&w->full, &fits, WAL_FULL_UNTOLD))
		wake_thread(w);
}

bool wal_make_room(struct wal *w)
{
	uint64_t freed = w->freed;
	uint32_t served = w->served;

	/* Hundreds of writes may ask, one after the other, for what has just failed; a full disk takes its time to say so. */
	if (w->failed_at > now_s())
		return false;
	/* The pass that is under way may have begun too early; the one after it has not. */
	for (int i = 0; i < 2 && w->freed == freed; i++) {
		w->asked++;
		wake_thread(w);
		while (w->served == served)
			futex_wait(&w->served, served, -1);
		served = w->served;
	}
	return w->freed != freed;
}

int wal_start_thread(struct wal *w, struct ummap_geom *geom)
{
	int err = thread_start(&w->thread, run, w);

	w->has_thread = !err;
	return err ? keys_refuse(geom, -err, "cannot start a thread: %s" KEYS_THREAD_LIMITS,
				 strerror(-err)) : 0;
}

void wal_stop_thread(struct wal *w)
{
	if (!w->has_thread)
		return;
	w->stop = true;
	wake_thread(w);
	pthread_join(w->thread, NULL);
	w->has_thread = false;
}
