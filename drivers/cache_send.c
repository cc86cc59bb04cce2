/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a flight of cache+ gets to the far store: its sectors in the store's order, neighbours in one request, and several requests
 * under way at a time, for a store that is far away answers many as soon as one. The caller sends, and so do the threads of its
 * crew; each takes the next stretch of neighbouring blocks until there is none left.
 *
 * There is one flight at a time (`homing`). A member of the crew says that it is there before it takes one of the places of a
 * flight, and the caller takes back those that nobody has taken before it waits for those who are there.
 */
#include "cache.h"

#include "common/memory_calls.h"
#include "thread.h"

#include <sys/mman.h>

#define GENTLE 1                       /* others that send along while nobody waits for it */
#define YIELD_MAX_NS 100000000         /* how long one request waits for readers, at most */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void cache_yield(struct cache *c)
{
	const struct timespec pause = { 0, 200000 };
	uint64_t until = now_ns() + YIELD_MAX_NS;

	while (c->far_readers > 0 && now_ns() < until)
		nanosleep(&pause, NULL);
}

char *cache_new_buffer(void)
{
	char *buffer = mmap(NULL, CACHE_BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return buffer == MAP_FAILED ? NULL : buffer;
}

void cache_free_buffer(char *buffer)
{
	if (buffer)
		raw_munmap(buffer, CACHE_BUFFER);
}

/* ---- One request ---- */

/* Neighbouring sectors that are in the buffer. */
struct run {
	char *buffer;
	uint64_t off;
	size_t len;
};

static int write_run(struct cache *c, struct run *run)
{
	uint64_t size = c->size;
	size_t len = run->off + run->len > size ? (run->off < size ? (size_t)(size - run->off) : 0) : run->len;
	int err = 0;

	if (len > 0) {
		if (c->crew.gently)
			cache_yield(c);
		err = behind_write(&c->far, run->buffer, len, run->off);
		cache_far_was(c, err);
		cache_keep_room(c);
	}
	run->len = 0;
	return err;
}

/* Some neighbouring sectors of one block go to the buffer, and to the clean slot of the block. */
static int collect(struct cache *c, struct cache_flight *f, unsigned first, unsigned n, struct run *run)
{
	uint64_t skip = (uint64_t)first << c->near.sector_shift, off = (f->block << c->near.block_shift) + skip;
	size_t bytes = (size_t)n << c->near.sector_shift;
	int err = 0;

	if (run->len > 0 && (run->off + run->len != off || run->len + bytes > CACHE_BUFFER))
		err = write_run(c, run);
	if (err)
		return err;
	f->unread = side_read(&c->near.file, run->buffer + run->len, bytes, cache_place(&c->near, f->slot, skip));
	if (f->unread)
		return 0;
	if (f->clean != CACHE_NO_SLOT &&
	    side_write(&c->near.file, run->buffer + run->len, bytes, cache_place(&c->near, f->clean, skip))) {
		cache_lock(c);
		cache_unpin(&c->near.index, f->clean);
		cache_unlock(c);
		f->clean = CACHE_NO_SLOT;
	}
	if (run->len == 0)
		run->off = off;
	run->len += bytes;
	return 0;
}

static int send_block(struct cache *c, struct cache_flight *f, struct run *run)
{
	unsigned sectors = 1u << (c->near.block_shift - c->near.sector_shift);
	int err = 0;

	cache_lock(c);
	f->clean = cache_find(&c->near.index, f->block, false);
	if (f->clean != CACHE_NO_SLOT)
		cache_pin(&c->near.index, f->clean);
	cache_unlock(c);
	for (unsigned k = 0, some; k < sectors && !err && !f->unread; k += some) {
		some = cache_mask_run(f->sectors, k, sectors - k);
		if (f->sectors >> k & 1)
			err = collect(c, f, k, some, run);
	}
	return err;
}

/* ---- A stretch after the other ---- */

/* Neighbouring blocks, as many as one request may have. Returns how many there are; 0: nothing is left, or something failed. */
static unsigned take_stretch(struct cache *c, struct cache_flight **first)
{
	struct cache_crew *crew = &c->crew;
	unsigned n = 0, most = (unsigned)(CACHE_BUFFER >> c->near.block_shift);

	futex_lock(&crew->lock);
	*first = c->flight + crew->next;
	while (!crew->err && n < most && crew->next < crew->slots && (n == 0 || (*first)[n].block == (*first)[n - 1].block + 1)) {
		crew->next++;
		n++;
	}
	futex_unlock(&crew->lock);
	return n;
}

static void send_stretches(struct cache *c, char *buffer)
{
	struct run run = { buffer, 0, 0 };
	struct cache_flight *f;
	unsigned n;

	while ((n = take_stretch(c, &f)) > 0) {
		int err = 0, none = 0;

		for (; n > 0 && !err; f++, n--)
			err = send_block(c, f, &run);
		if (!err && run.len > 0)
			err = write_run(c, &run);
		if (err)
			atomic_compare_exchange_strong(&c->crew.err, &none, err);
	}
}

int cache_send(struct cache *c, unsigned n, bool gently)
{
	struct cache_crew *crew = &c->crew;
	unsigned most = gently ? GENTLE : CACHE_CREW, others = n - 1 < most ? n - 1 : most;
	uint32_t there;

	crew->slots = n;
	crew->next = 0;
	crew->err = 0;
	crew->gently = gently;
	if (others > 0 && crew->n > 0) {
		crew->places = (int)others;
		crew->called++;
		futex_wake(&crew->called, (int)others);
	}
	send_stretches(c, c->buffer);
	crew->places = 0;
	while ((there = crew->there) > 0)
		futex_wait(&crew->there, there, -1);
	return crew->err;
}

/* ---- The crew ---- */

static bool take_place(struct cache_crew *crew)
{
	int left = crew->places;

	while (left > 0 && !atomic_compare_exchange_weak(&crew->places, &left, left - 1))
		;
	return left > 0;
}

static void *run_member(void *arg)
{
	struct cache_member *m = arg;
	struct cache_crew *crew = &m->cache->crew;
	uint32_t seen;

	while (seen = crew->called, !crew->dismissed) {
		crew->there++;
		if (take_place(crew))
			send_stretches(m->cache, m->buffer);
		if (--crew->there == 0)
			futex_wake(&crew->there, 1);
		futex_wait(&crew->called, seen, -1);
	}
	return NULL;
}

void cache_gather_crew(struct cache *c)
{
	struct cache_crew *crew = &c->crew;

	if (crew->n > 0 || !(c->far.caps & UMMAP_CAP_PARALLEL))
		return;
	while (crew->n < CACHE_CREW) {
		struct cache_member *m = &crew->member[crew->n];

		m->cache = c;
		if (!m->buffer)
			m->buffer = cache_new_buffer();
		/* A smaller one will do. */
		if (!m->buffer || thread_start(&m->thread, run_member, m))
			break;
		crew->n++;
	}
}

void cache_dismiss_crew(struct cache *c)
{
	struct cache_crew *crew = &c->crew;

	crew->dismissed = true;
	crew->called++;
	futex_wake(&crew->called, INT_MAX);
	for (; crew->n > 0; crew->n--)
		pthread_join(crew->member[crew->n - 1].thread, NULL);
}
