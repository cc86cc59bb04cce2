/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The background of cache+: writing dirty slots back, keeping some slots free, and filling the near
 * file ahead.
 *
 * A flight is a set of dirty slots, the oldest ones. They are noted; a commit says that they are
 * dirty (order 12); their parts go to the far store (send.c); the far store is flushed; and slots
 * that were not written meanwhile become clean.
 */
#include "cache.h"

#include "../keys.h"
#include "../thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FLIGHT 1024                /* slots of a flight */
#define MAX_RESERVE 1024               /* slots that are kept free */
#define REST_MS 1000
#define NOTICE_INTERVAL_S 60           /* between two notices of the same trouble */
#define START_BYTES ((uint64_t)256 << 10) /* written bytes with which storage begins */
#define SENDERS 8                      /* requests of a flight at a time */
#define GENTLE_SENDERS 2               /* the same, if no caller waits for the flight */
#define MAX_YIELD_NS 100000000         /* for which a request waits for readers */

/* ---- Room ---- */

uint32_t cache_reserve(const struct cache *c)
{
	uint32_t part = c->index.nslots / 64;

	return part < 1 ? 1 : part > MAX_RESERVE ? MAX_RESERVE : part;
}

static uint32_t count_listed(const struct cache *c)
{
	uint32_t n = 0;

	for (int l = 0; l < CACHE_LISTS; l++)
		n += c->index.lists[l].count;
	return n;
}

void cache_make_room(struct cache *c)
{
	uint32_t wanted = 2 * cache_reserve(c), s = 0;
	bool commits;

	futex_lock(&c->o.lock);
	while (s != CACHE_NO_SLOT && c->index.nslots - count_listed(c) < wanted) {
		s = cache_evict(&c->index);
		if (s != CACHE_NO_SLOT)
			cache_empty(c, s);
	}
	overlay_reclaim(&c->o);
	/* Emptied slots become free by a commit. */
	commits = c->index.nslots - c->o.used < wanted && c->o.used > count_listed(c);
	futex_unlock(&c->o.lock);
	if (commits)
		cache_commit(c);
}

static void keep_room(struct cache *c)
{
	bool few;

	futex_lock(&c->o.lock);
	few = c->index.nslots - c->o.used < cache_reserve(c);
	futex_unlock(&c->o.lock);
	if (few)
		cache_make_room(c);
}

/* ---- Sending: the far store gets several requests at a time ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Lets readers of the far store go first, for a while: until none has begun for a pause. */
static void yield_to_readers(struct cache *c)
{
	uint64_t until = now_ns() + MAX_YIELD_NS;
	unsigned reads;

	do {
		reads = c->far_reads;
		cache_pause();
	} while ((c->far_reads != reads || c->far_readers > 0) && now_ns() < until);
}

/* The slots of a flight on their way. */
struct flight_sending {
	struct overlay_sending s;
	unsigned slots;                /* number of slots of the flight */
	bool gently;                   /* whether readers of the far store come first */
};

static int write_far(struct overlay_sending *s, const void *buf, size_t len, uint64_t off)
{
	struct cache *c = cache_of(s->o);
	int err;

	if (((struct flight_sending *)s)->gently)
		yield_to_readers(c);
	err = behind_write(s->store, buf, len, off);
	cache_far_was(c, err);
	keep_room(c);
	return err;
}

/* The slot stays dirty. */
static void skip_slot(struct overlay_sending *s, uint64_t part, int err)
{
	struct cache *c = cache_of(s->o);
	uint64_t block = part * OVERLAY_PART >> c->shift;

	for (unsigned i = 0; i < ((struct flight_sending *)s)->slots; i++)
		if (c->flight[i].block == block)
			c->flight[i].unread = err;
}

static int note_parts(struct cache *c, const struct cache_flight *f, struct blockmap *places)
{
	uint64_t first = (f->block << c->shift) / OVERLAY_PART;
	int err = blockmap_reserve(places, first, cache_block_bytes(c) / OVERLAY_PART);

	for (uint64_t parts = f->parts; parts && !err; parts &= parts - 1) {
		unsigned k = (unsigned)__builtin_ctzll(parts);

		blockmap_set(places, first + k,
			     overlay_block_at(&c->o, f->slot) + k * OVERLAY_PART);
	}
	return err;
}

/* Sends c->flight, which has n slots. */
static int send_flight(struct cache *c, unsigned n, bool gently)
{
	struct flight_sending f = {
		.s = { .o = &c->o, .store = &c->o.store, .size = c->o.size, .skip = skip_slot,
		       .write = write_far, .max_senders = gently ? GENTLE_SENDERS : SENDERS },
		.slots = n, .gently = gently,
	};
	int err = 0;

	for (unsigned i = 0; i < n && !err; i++)
		err = note_parts(c, &c->flight[i], &f.s.places);
	if (!err)
		err = overlay_send(&f.s);
	blockmap_free(&f.s.places);
	return err;
}

/* ---- A flight ---- */

/* Notes the oldest dirty slots, at most n. */
static unsigned begin_flight(struct cache *c, uint32_t most)
{
	struct cache_index *ix = &c->index;
	unsigned n = 0;

	futex_lock(&c->o.lock);
	for (uint32_t s = ix->lists[CACHE_DIRTY].first; s != CACHE_NO_SLOT && n < most &&
	     n < MAX_FLIGHT; s = ix->slots[s].next) {
		struct cache_slot *slot = &ix->slots[s];

		c->flight[n++] = (struct cache_flight){ slot->key >> 1, cache_slot(c, s)->valid, s,
							0 };
		slot->flying = 1;
		slot->rewritten = slot->writers > 0;
	}
	futex_unlock(&c->o.lock);
	return n;
}

/* Adds the parts of a landed slot, which have this sum, to the clean slot that they were copied
 * to. */
static void join_slots(struct cache *c, const struct cache_flight *f, uint32_t clean, uint64_t sum)
{
	const struct overlay_slot before = *cache_slot(c, clean);

	cache_set_parts(c, clean, before.valid | f->parts);
	if (before.flags & SLOT_SUMMED)
		cache_add_sum(c, clean, before.data, sum);
	cache_drop(c, f->slot);
}

/* Ends the flight of a slot; under the lock. `clean` is the clean slot of the block that has its
 * parts now, too; CACHE_NO_SLOT: none. */
static void land_slot(struct cache *c, const struct cache_flight *f, bool is_back, uint32_t clean,
		      uint64_t sum)
{
	struct cache_slot *slot = &c->index.slots[f->slot];
	uint32_t other = cache_find(&c->index, f->block, false);

	c->far_changes++;
	if (!cache_slot(c, f->slot)->valid && !slot->writers) {
		cache_drop(c, f->slot);
	} else if (!is_back || slot->rewritten) {
		cache_stay_dirty(&c->index, f->slot, cache_now());
	} else if (clean != CACHE_NO_SLOT && clean == other) {
		join_slots(c, f, clean, sum);
	} else {
		if (other != CACHE_NO_SLOT)
			cache_drop(c, other);
		cache_make_clean(&c->index, f->slot);
		cache_slot(c, f->slot)->flags |= SLOT_CLEAN;
		cache_add_sum(c, f->slot, 0, sum);
		overlay_mark_changed(&c->o, f->slot);
	}
}

/* As a reader: a clean slot that is evicted meanwhile gets no other block. */
static void land_block(struct cache *c, const struct cache_flight *f, bool is_back)
{
	unsigned ticket = overlay_enter(&c->o);
	uint64_t failures, sum = 0;
	uint32_t clean;

	if (is_back)
		is_back = cache_sum_parts(c, f->slot, f->parts, &sum) == 0;
	futex_lock(&c->o.lock);
	failures = c->o.failures;
	clean = is_back ? cache_find(&c->index, f->block, false) : CACHE_NO_SLOT;
	futex_unlock(&c->o.lock);
	if (clean != CACHE_NO_SLOT && cache_copy_parts(c, f->slot, clean, f->parts))
		clean = CACHE_NO_SLOT;
	futex_lock(&c->o.lock);
	land_slot(c, f, is_back, c->o.failures == failures ? clean : CACHE_NO_SLOT, sum);
	futex_unlock(&c->o.lock);
	overlay_leave(&c->o, ticket);
}

/* *unread: an error of reading the near file. */
static int write_flight_back(struct cache *c, unsigned n, bool gently, int *unread)
{
	unsigned far_failures;
	int err = cache_commit(c);

	if (!err)
		err = cache_touch_far(c);
	far_failures = c->far_failures;
	if (!err) {
		err = send_flight(c, n, gently);
		if (!err)
			err = cache_flush_far(c, true);
		/* A flush of another thread has failed, and may have lost these blocks. */
		if (!err && c->far_failures != far_failures)
			err = -EIO;
	}
	c->landed = true;
	for (unsigned i = 0; i < n; i++) {
		land_block(c, &c->flight[i], !err && !c->flight[i].unread);
		*unread = *unread ? *unread : c->flight[i].unread;
	}
	if (!err)
		err = cache_commit(c);
	c->landed = err != 0;
	return err;
}

/* Writes back at most so many slots, each one once: slots that stay dirty are the newest ones. */
static int write_slots_back(struct cache *c, uint32_t most, bool gently)
{
	uint32_t dirty = c->index.lists[CACHE_DIRTY].count;
	unsigned n = 1;
	int err = 0, unread = 0;

	for (uint32_t left = most < dirty ? most : dirty; left > 0 && n > 0 && !err; left -= n) {
		n = begin_flight(c, left);
		if (n > 0)
			err = write_flight_back(c, n, gently, &unread);
	}
	if (unread)
		cache_near_failed(c, unread);
	return err ? err : unread;
}

/* Makes the far store as long as the store, which may be longer than all of its blocks say. */
static int lengthen_far(struct cache *c)
{
	uint64_t size = c->o.size, now;
	int err = behind_size(&c->o.store, &now);

	if (err || now >= size || !c->o.grows)
		return err;
	err = cache_touch_far(c);
	if (err)
		return err;
	c->far_unflushed = CACHE_UNFLUSHED;
	err = overlay_lengthen_store(&c->o.store, size);
	c->far_unflushed = CACHE_UNFLUSHED;
	return err;
}

int cache_write_back(struct cache *c)
{
	int err;

	futex_lock(&c->homing);
	err = write_slots_back(c, UINT32_MAX, false);
	if (!err)
		err = lengthen_far(c);
	if (!err)
		err = cache_flush_far(c, false);
	futex_unlock(&c->homing);
	return err;
}

/* ---- Flushing the far store ---- */

static bool is_doubtful(struct cache *c, uint32_t s)
{
	return cache_slot(c, s)->flags & SLOT_DOUBTFUL;
}

/* Under the lock of flushes: a flush that fails may lose what another thread has written, whose own
 * flush succeeds then. Later flushes see far_failures and far_lost. */
static int flush_far(struct cache *c)
{
	uint32_t was = CACHE_UNFLUSHED;
	bool unflushed = atomic_compare_exchange_strong(&c->far_unflushed, &was,
							CACHE_BEING_FLUSHED);
	int err = behind_flush(&c->o.store, 0, UINT64_MAX);

	/* Writes that have begun meanwhile may be lost, too. */
	unflushed |= err && c->far_unflushed != CACHE_FLUSHED;
	cache_far_was(c, err);
	was = CACHE_BEING_FLUSHED;
	if (err && unflushed)
		c->far_unflushed = CACHE_UNFLUSHED;
	else if (unflushed)
		atomic_compare_exchange_strong(&c->far_unflushed, &was, CACHE_FLUSHED);
	if (err < 0)
		c->far_failures++;
	if (err < 0 && unflushed) {
		c->far_doubt = true;
		cache_drop_all(c, is_doubtful);
		c->far_lost = err;
	}
	return err;
}

int cache_flush_far(struct cache *c, bool always)
{
	int err = 0;

	if (!always && c->far_unflushed == CACHE_FLUSHED)
		return 0;
	futex_lock(&c->flushing);
	if (always || c->far_unflushed != CACHE_FLUSHED)
		err = flush_far(c);
	futex_unlock(&c->flushing);
	return err;
}

/* A write past the near file that begins meanwhile makes its slots doubtful again. */
static void end_doubt(struct cache *c, uint64_t past)
{
	for (uint32_t s = 0; s < c->index.nslots; s++) {
		futex_lock(&c->o.lock);
		if (is_doubtful(c, s) && c->past == past && !c->far_doubt) {
			cache_slot(c, s)->flags &= ~SLOT_DOUBTFUL;
			overlay_mark_changed(&c->o, s);
		}
		futex_unlock(&c->o.lock);
	}
}

int cache_settle_far(struct cache *c)
{
	uint64_t before = c->past;
	int err;

	if ((uint32_t)before)
		return 0;
	futex_lock(&c->homing);
	err = cache_flush_far(c, true);
	if (!err) {
		c->settled = before;
		end_doubt(c, before);
		err = cache_commit(c);
	}
	futex_unlock(&c->homing);
	return err;
}

/* ---- Filling ahead ---- */

static bool has_room(struct cache *c)
{
	bool has;

	futex_lock(&c->o.lock);
	overlay_reclaim(&c->o);
	has = c->index.nslots - c->o.used > cache_reserve(c);
	futex_unlock(&c->o.lock);
	return has;
}

/* Whether the far store has data from an offset on. */
static bool has_data(struct cache *c, uint64_t off)
{
	uint64_t begin, end;

	return !c->o.store.driver.data ||
	       c->o.store.driver.data(c->o.store.h, off, &begin, &end) < 0 || begin != UINT64_MAX;
}

/* Reads some blocks ahead. false: there are no more, or there is no room. */
static bool populate_some(struct cache *c)
{
	uint64_t off = c->populated, size = c->o.size, changes = c->far_changes;
	size_t len = off < size ? (size_t)min_u64(size - off, CACHE_BUFFER) : 0;
	struct iovec iov;

	if (len == 0 || !has_data(c, off) || !has_room(c))
		return false;
	if ((uint32_t)c->past)
		return true;
	yield_to_readers(c);
	/* The last part has zeros behind the end. */
	len = (len + OVERLAY_PART - 1) & ~(OVERLAY_PART - 1);
	if (behind_read(&c->o.store, c->buffer, len, off) < 0)
		return false;
	iov = (struct iovec){ c->buffer, len };
	cache_keep(c, cursor_begin(&iov, 1, off), &changes);
	c->populated = off + CACHE_BUFFER;
	return true;
}

/* ---- The thread ---- */

static bool is_due(struct cache *c)
{
	struct cache_index *ix = &c->index;
	uint32_t first;
	bool due;

	futex_lock(&c->o.lock);
	first = ix->lists[CACHE_DIRTY].first;
	due = first != CACHE_NO_SLOT && (ix->lists[CACHE_DIRTY].count > c->max_dirty / 2 ||
					 cache_now() - ix->slots[first].since >= c->max_age);
	futex_unlock(&c->o.lock);
	return due;
}

static void write_due_back(struct cache *c)
{
	futex_lock(&c->homing);
	write_slots_back(c, MAX_FLIGHT, c->index.lists[CACHE_DIRTY].count < c->max_dirty);
	futex_unlock(&c->homing);
}

/* A flush waits for all bytes of the near file, also for clean ones. */
static void start_writing(struct cache *c)
{
	if (c->unstarted < START_BYTES)
		return;
	c->unstarted = 0;
	side_start(&c->o.file, 0, 0);
}

void cache_has_written(struct cache *c, size_t bytes)
{
	uint64_t before = atomic_fetch_add(&c->unstarted, bytes);

	if (before < START_BYTES && before + bytes >= START_BYTES)
		cache_wake(c);
}

static bool is_unsettled(const struct cache *c)
{
	return c->o.writable && c->past != c->settled;
}

/* Work that has failed is repeated once a second. */
static bool may_try(struct cache *c)
{
	uint32_t before = c->tried;

	c->tried = cache_now();
	return !c->trouble || c->tried != before;
}

static void give_notice(struct cache *c, enum cache_failure failure, int err)
{
	if (failure == CACHE_SUM)
		notice_give(&c->o.notice, "cache+: block %ju of the store differs from its "
			    "checksum in '%.140s'. It is read from the far store",
			    (uintmax_t)c->damaged, c->o.file.path);
	else if (failure == CACHE_FAR)
		notice_give(&c->o.notice, "cache+: the far store of '%.140s' fails: %s. %s",
			    c->o.file.path, strerror(err), c->mode == CACHE_BACK ?
			    "Changes stay in the near file until it works again" :
			    "Writes fail, and so do reads of data that is not in the near file");
	else
		notice_give(&c->o.notice, "cache+: the near file '%.140s' fails: %s. The far store "
			    "serves the data that it has", c->o.file.path, strerror(err));
}

void cache_give_notices(struct cache *c)
{
	uint32_t now = cache_now() + 1;

	for (int i = 0; i < CACHE_FAILURES; i++) {
		int err = atomic_exchange(&c->failed[i], 0);

		if (!err || (c->told[i] && now - c->told[i] < NOTICE_INTERVAL_S))
			continue;
		c->told[i] = now;
		give_notice(c, (enum cache_failure)i, err);
	}
}

/* Once a second, so that guests find the blocks, and the end of the process leaves them. */
static void commit_for_guests(struct cache *c)
{
	uint32_t now = cache_now();

	if (!c->commit_due || now == c->committed)
		return;
	c->commit_due = false;
	c->committed = now;
	cache_commit(c);
}

/* Returns whether there is more to do at once. */
static bool do_due_work(struct cache *c, bool quiet)
{
	cache_give_notices(c);
	start_writing(c);
	keep_room(c);
	commit_for_guests(c);
	if (c->o.writable && is_due(c)) {
		if (may_try(c))
			write_due_back(c);
		return !c->trouble;
	}
	if (quiet && is_unsettled(c))
		cache_settle_far(c);
	if (c->populates) {
		futex_lock(&c->homing);
		c->populates = populate_some(c);
		futex_unlock(&c->homing);
	}
	return c->populates;
}

static void *run_thread(void *arg)
{
	struct cache *c = arg;
	uint64_t past = c->past;
	uint32_t seen = c->news, now;

	/* The word is read first: a change after this ends the wait. */
	while (now = c->news, !c->stop) {
		bool quiet = seen == now && past == c->past, again;
		uint32_t rests;

		seen = now;
		past = c->past;
		futex_lock(&c->stepping);
		again = !c->stop && do_due_work(c, quiet);
		futex_unlock(&c->stepping);
		rests = c->index.lists[CACHE_DIRTY].count || is_unsettled(c) || c->commit_due;
		if (!again)
			futex_wait(&c->news, seen, rests ? REST_MS : -1);
	}
	return NULL;
}

void cache_wake(struct cache *c)
{
	c->news++;
	futex_wake(&c->news, 1);
}

int cache_start(struct cache *c, struct ummap_geom *geom)
{
	int err;

	c->flight = malloc(MAX_FLIGHT * sizeof(*c->flight));
	c->buffer = malloc(CACHE_BUFFER);
	if (!c->flight || !c->buffer)
		return -ENOMEM;
	if (c->o.writable)
		overlay_gather_crew(&c->o, SENDERS - 1);
	err = thread_start(&c->thread, run_thread, c);
	c->has_thread = !err;
	return err ? keys_refuse(geom, -err, "cannot start a thread: %s" KEYS_THREAD_LIMITS,
				 strerror(-err)) : 0;
}

void cache_stop(struct cache *c)
{
	if (!c->has_thread)
		return;
	c->stop = true;
	cache_wake(c);
	pthread_join(c->thread, NULL);
	c->has_thread = false;
}

void cache_free(struct cache *c)
{
	free(c->flight);
	free(c->buffer);
	free(c);
}
