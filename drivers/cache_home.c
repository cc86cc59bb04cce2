/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes on in the background of cache+: writing back what is dirty, when it is so for long or there is much of it; keeping
 * some slots free; filling the cache ahead, if asked to.
 *
 * A flight is some of the dirty slots, the oldest ones: they are noted, a pass says that they are dirty, their sectors go to
 * the far store in its order, neighbours in one request, the far store is flushed, and what was not written again meanwhile is
 * clean; a pass says so. Sectors of a block that has a clean slot, too, are copied there on the way.
 */
#include "cache.h"

#include "keys.h"
#include "thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FLIGHT_MAX 1024                /* slots in one flight */
#define RESERVE_MAX 1024               /* slots that are kept free */
#define REST_MS 1000
#define NOTICE_S 60                    /* from one notice to the next of the same kind */
#define START ((uint64_t)256 << 10)    /* bytes from which on the system begins to write them */

/* ---- Room ---- */

uint32_t cache_reserve(const struct cache *c)
{
	uint32_t part = c->near.index.slots / 64;

	return part < 1 ? 1 : part > RESERVE_MAX ? RESERVE_MAX : part;
}

void cache_make_room(struct cache *c)
{
	struct cache_index *ix = &c->near.index;
	uint32_t wanted = 2 * cache_reserve(c), freeing;

	cache_lock(c);
	while (ix->list[CACHE_FREE].count + ix->list[CACHE_FREEING].count < wanted && cache_evict(ix))
		;
	freeing = ix->list[CACHE_FREEING].count;
	cache_unlock(c);
	if (freeing)
		cache_make_durable(c);
}

void cache_keep_room(struct cache *c)
{
	if (c->near.index.list[CACHE_FREE].count < cache_reserve(c))
		cache_make_room(c);
}

/* ---- A flight ---- */

/* Notes at most so many, the oldest ones. */
static unsigned begin_flight(struct cache *c, uint32_t most)
{
	struct cache_index *ix = &c->near.index;
	unsigned n = 0;

	cache_lock(c);
	for (uint32_t s = ix->list[CACHE_DIRTY].first; s != CACHE_NO_SLOT && n < most && n < FLIGHT_MAX; s = ix->slot[s].next) {
		struct cache_slot *slot = &ix->slot[s];

		c->flight[n++] = (struct cache_flight){ slot->key >> 1, cache_valid(slot), s, CACHE_NO_SLOT, 0 };
		cache_pin(ix, s);
		slot->flying = 1;
		slot->rewritten = slot->writers > 0;
	}
	c->near.next.touched = 1;
	cache_unlock(c);
	return n;
}

/* In the order of the store. A heap, because qsort(3) may allocate. */
static void sink(struct cache_flight *f, unsigned at, unsigned n)
{
	struct cache_flight it = f[at];

	for (unsigned child; (child = 2 * at + 1) < n; at = child) {
		child += child + 1 < n && f[child + 1].block > f[child].block;
		if (f[child].block <= it.block)
			break;
		f[at] = f[child];
	}
	f[at] = it;
}

static void sort_flight(struct cache_flight *f, unsigned n)
{
	for (unsigned at = n / 2; at > 0; at--)
		sink(f, at - 1, n);
	for (; n > 1; n--) {
		struct cache_flight last = f[n - 1];

		f[n - 1] = f[0];
		f[0] = last;
		sink(f, 0, n - 1);
	}
}

/* Under the lock. */
static void land(struct cache *c, const struct cache_flight *f, bool is_home, bool is_copied)
{
	struct cache_index *ix = &c->near.index;
	uint32_t clean = cache_find(ix, f->block, false);

	if (!cache_valid(&ix->slot[f->slot]) && !ix->slot[f->slot].writers) {
		cache_drop(ix, f->slot);
	} else if (!is_home || ix->slot[f->slot].rewritten) {
		cache_stay_dirty(ix, f->slot, cache_now());
	} else if (clean != CACHE_NO_SLOT && clean == f->clean && is_copied) {
		cache_set_valid(ix, clean, cache_valid(&ix->slot[clean]) | f->sectors);
		cache_drop(ix, f->slot);
	} else {
		/* One that came meanwhile has other sectors, if any. */
		if (clean != CACHE_NO_SLOT)
			cache_drop(ix, clean);
		cache_make_clean(ix, f->slot);
	}
	c->stamp[f->block % CACHE_STAMPS] += (uint64_t)1 << 32;
	cache_unpin(ix, f->slot);
	if (f->clean != CACHE_NO_SLOT)
		cache_unpin(ix, f->clean);
}

/* *unread: what could not be read from the near file. */
static int fly(struct cache *c, unsigned n, bool gently, int *unread)
{
	int err = cache_make_durable(c);
	unsigned failures = c->near.failures, far_failures = c->far_failures;

	if (!err) {
		sort_flight(c->flight, n);
		err = cache_send(c, n, gently);
		if (!err)
			err = cache_flush_far(c);
		/* Somebody else's flush failed, and may have been for these. */
		if (!err && c->far_failures != far_failures)
			err = -EIO;
	}
	c->landed = true;
	cache_lock(c);
	for (unsigned i = 0; i < n; i++) {
		land(c, &c->flight[i], !err && !c->flight[i].unread, c->near.failures == failures);
		*unread = *unread ? *unread : c->flight[i].unread;
	}
	cache_unlock(c);
	if (!err)
		err = cache_make_durable(c);
	c->landed = err != 0;
	return err;
}

/* At most so many slots, each once: those that stay dirty are the last ones then. */
static int bring_home(struct cache *c, uint32_t most, bool gently)
{
	uint32_t dirty = c->near.index.list[CACHE_DIRTY].count;
	unsigned n = 1;
	int err = 0, unread = 0;

	for (uint32_t left = most < dirty ? most : dirty; left > 0 && n > 0 && !err; left -= n) {
		n = begin_flight(c, left);
		if (n > 0)
			err = fly(c, n, gently, &unread);
	}
	if (unread)
		cache_near_failed(c, unread);
	return err ? err : unread;
}

static void note_touched(struct cache *c)
{
	cache_lock(c);
	c->near.next.touched = 1;
	cache_unlock(c);
}

/* A store that has become longer than what was written to it. */
static int lengthen(struct cache *c)
{
	uint64_t size = c->size, now;
	int err = behind_size(&c->far, &now);

	if (err || now >= size || !c->grows)
		return err;
	note_touched(c);
	err = cache_make_durable(c);
	if (err)
		return err;
	c->far_unflushed = CACHE_UNFLUSHED;
	err = behind_resize(&c->far, size);
	if (err == -EOPNOTSUPP)
		err = behind_write(&c->far, "", 1, size - 1);
	c->far_unflushed = CACHE_UNFLUSHED;
	return err;
}

int cache_bring_home(struct cache *c)
{
	int err;

	futex_lock(&c->homing);
	err = bring_home(c, UINT32_MAX, false);
	if (!err)
		err = lengthen(c);
	if (!err)
		err = cache_flush_past(c);
	futex_unlock(&c->homing);
	return err;
}

/* ---- The far store at rest ---- */

bool cache_look_at_far(struct cache *c, struct cache_facts *facts)
{
	struct stat st;

	if (c->far_fd < 0 || fstat(c->far_fd, &st) < 0)
		return false;
	if (S_ISBLK(st.st_mode))
		return true;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_ino != facts->id)
		return false;
	facts->seconds = (uint64_t)st.st_mtim.tv_sec;
	facts->nanoseconds = (uint64_t)st.st_mtim.tv_nsec;
	return true;
}

int cache_settle_far(struct cache *c)
{
	struct cache_near *n = &c->near;
	uint64_t before = c->direct;
	int err;

	if ((uint32_t)before)
		return 0;
	futex_lock(&c->homing);
	err = cache_flush_far(c);
	if (!err) {
		cache_lock(c);
		if (c->direct == before && !c->far_doubt)
			memset(n->next.intent, 0, sizeof(n->next.intent));
		cache_unlock(c);
		err = cache_make_durable(c);
	}
	if (!err)
		c->settled = before;
	futex_unlock(&c->homing);
	return err;
}

/* ---- Filling ahead ---- */

/* A block that nobody has asked for; false: it has come meanwhile, or there is no room. */
static bool add_block(struct cache *c, uint64_t block, const char *bytes, unsigned sectors, uint64_t direct)
{
	struct cache_index *ix = &c->near.index;
	unsigned failures = c->near.failures;
	uint32_t s = CACHE_NO_SLOT;
	int err;

	cache_lock(c);
	if (ix->list[CACHE_FREE].count > cache_reserve(c))
		s = cache_take(ix, block, false);
	cache_unlock(c);
	if (s == CACHE_NO_SLOT)
		return false;
	err = side_write(&c->near.file, bytes, (size_t)sectors << c->near.sector_shift, cache_place(&c->near, s, 0));
	if (err)
		cache_near_failed(c, err);
	cache_lock(c);
	if (!err && c->direct == direct && c->near.failures == failures && cache_find(ix, block, false) == CACHE_NO_SLOT &&
	    cache_find(ix, block, true) == CACHE_NO_SLOT)
		cache_put(ix, s, block, false, cache_mask_of(0, sectors), 0);
	else
		cache_untake(ix, s);
	cache_unlock(c);
	return !err;
}

/* Some blocks more; false: that was all, or all that there is room for. */
/* Whether the far store has something from there on. */
static bool has_data(struct cache *c, uint64_t off)
{
	uint64_t begin, end;

	return !c->far.driver.data || c->far.driver.data(c->far.h, off, &begin, &end) < 0 || begin != UINT64_MAX;
}

static bool populate_some(struct cache *c)
{
	uint64_t off = c->populated, size = c->size, block = (uint64_t)1 << c->near.block_shift, direct = c->direct;
	size_t len = off < size ? (size - off < CACHE_BUFFER ? (size_t)(size - off) : CACHE_BUFFER) : 0;
	size_t sector = (size_t)1 << c->near.sector_shift;
	bool room = true;

	if (len == 0 || !has_data(c, off))
		return false;
	if ((uint32_t)direct)
		return true;
	cache_yield(c);
	/* The last sector has zeros behind the end. */
	len = (len + sector - 1) & ~(sector - 1);
	if (behind_read(&c->far, c->buffer, len, off) < 0)
		return false;
	for (size_t at = 0; at < len && room; at += block)
		room = add_block(c, cache_block_of(c, off + at), c->buffer + at,
				 (unsigned)((len - at < block ? len - at : block) >> c->near.sector_shift), direct);
	c->populated = off + CACHE_BUFFER;
	return room;
}

/* ---- The thread ---- */

/* Whether something dirty has to go home now. */
static bool is_due(struct cache *c)
{
	struct cache_index *ix = &c->near.index;
	uint32_t first;
	bool due;

	cache_lock(c);
	first = ix->list[CACHE_DIRTY].first;
	due = first != CACHE_NO_SLOT && (ix->list[CACHE_DIRTY].count > c->dirty_most / 2 ||
					 cache_now() - ix->slot[first].since >= c->dirty_age);
	cache_unlock(c);
	return due;
}

static void write_back(struct cache *c)
{
	futex_lock(&c->homing);
	cache_gather_crew(c);
	/* What is due was so before a flush came. */
	bring_home(c, FLIGHT_MAX, c->near.index.list[CACHE_DIRTY].count < c->dirty_most);
	futex_unlock(&c->homing);
}

/* A sync waits for all that was written to the near file, also for what is clean. Its pages are all over the file. */
static void start_writing(struct cache *c)
{
	if (c->unstarted < START)
		return;
	c->unstarted = 0;
	side_start(&c->near.file, 0, 0);
}

void cache_has_written(struct cache *c, size_t bytes)
{
	uint64_t before = atomic_fetch_add(&c->unstarted, bytes);

	if (before < START && before + bytes >= START)
		cache_tell(c);
}

/* Whether intents are noted that nobody has had for a while. */
static bool is_restless(const struct cache *c)
{
	return c->writable && c->direct != c->settled;
}

/* What fails is tried again, once a second. */
static bool may_try(struct cache *c)
{
	uint32_t before = c->tried;

	c->tried = cache_now();
	return !(c->trouble & (CACHE_FAR_FAILS | CACHE_NEAR_FAILS)) || c->tried != before;
}

void cache_give_notice(struct cache *c)
{
	uint32_t now = cache_now() + 1;

	for (int far = 0; far < 2; far++) {
		int err = atomic_exchange(&c->failed[far], 0);

		/* What comes and goes is told now and then. */
		if (!err || (c->told[far] && now - c->told[far] < NOTICE_S))
			continue;
		c->told[far] = now;
		if (far)
			notice_give(&c->notice, "cache+: the far store of '%.140s' fails: %s. %s",
				    c->near.file.path, strerror(err),
				    c->mode == CACHE_BACK ?
				    "Changes stay in the near file until it works again" :
				    "Writes fail, and so do reads of data that is not in the near "
				    "file");
		else
			notice_give(&c->notice, "cache+: the near file '%.140s' fails: %s. The far "
				    "store serves the data that it has", c->near.file.path,
				    strerror(err));
	}
}

static bool step(struct cache *c, bool quiet)
{
	cache_give_notice(c);
	start_writing(c);
	cache_keep_room(c);
	if (c->writable && is_due(c)) {
		if (may_try(c))
			write_back(c);
		return !(c->trouble & (CACHE_FAR_FAILS | CACHE_NEAR_FAILS));
	}
	if (quiet && is_restless(c))
		cache_settle_far(c);
	if (c->populate) {
		futex_lock(&c->homing);
		c->populate = populate_some(c);
		futex_unlock(&c->homing);
	}
	return c->populate;
}

static void *run_thread(void *arg)
{
	struct cache *c = arg;
	uint64_t direct = c->direct;
	uint32_t seen = c->word, now;

	/* The word comes first: what is said after it is read ends the wait. So does its end. */
	while (now = c->word, !c->stop) {
		bool quiet = seen == now && direct == c->direct, again;

		seen = now;
		direct = c->direct;
		futex_lock(&c->stepping);
		again = !c->stop && step(c, quiet);
		futex_unlock(&c->stepping);
		if (again)
			continue;
		futex_wait(&c->word, seen, c->near.index.list[CACHE_DIRTY].count || is_restless(c) ? REST_MS : -1);
	}
	return NULL;
}

void cache_tell(struct cache *c)
{
	c->word++;
	futex_wake(&c->word, 1);
}

int cache_start_thread(struct cache *c, struct ummap_geom *geom)
{
	int err;

	/* Who waits for all of it at a flush may do so in a signal handler, which starts no threads. */
	if (c->flush_far && c->writable)
		cache_gather_crew(c);
	err = thread_start(&c->thread, run_thread, c);
	c->has_thread = !err;
	if (err)
		cache_dismiss_crew(c);
	return err ? keys_refuse(geom, -err, "cannot start a thread: %s" KEYS_THREAD_LIMITS,
				 strerror(-err)) : 0;
}

void cache_stop_thread(struct cache *c)
{
	if (!c->has_thread)
		return;
	c->stop = true;
	cache_tell(c);
	pthread_join(c->thread, NULL);
	c->has_thread = false;
}

int cache_home_init(struct cache *c)
{
	c->flight = malloc(FLIGHT_MAX * sizeof(*c->flight));
	c->buffer = cache_new_buffer();
	return c->flight && c->buffer ? 0 : -ENOMEM;
}

void cache_home_end(struct cache *c)
{
	free(c->flight);
	cache_free_buffer(c->buffer);
	for (int i = 0; i < CACHE_CREW; i++)
		cache_free_buffer(c->crew.member[i].buffer);
}
