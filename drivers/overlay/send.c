/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes blocks of an overlay to the store, in the order of the store: blocks that are consecutive
 * there in one request, and several requests at a time if the store allows it. The caller is one of
 * the senders. The others are the crew: threads that the handle starts when it is opened, because a
 * signal handler may wait for a pass, and the thread that is interrupted may hold locks that the
 * start of a thread takes.
 *
 * Lock: `lock` of the sending, around `next`, inside all other locks.
 */
#include "overlay.h"

#include "../thread.h"
#include "common/futex.h"
#include "common/memory_calls.h"
#include "common/minmax.h"

#include <errno.h>
#include <sys/mman.h>

/* Takes the next blocks that are consecutive in the store. Returns how many; 0: none is left, or a
 * request has failed. */
static uint64_t take_run(struct overlay_sending *s, uint64_t *first)
{
	uint64_t place, n = 0;

	futex_lock(&s->lock);
	if (!s->err && blockmap_next(&s->places, &s->next, &place)) {
		*first = s->next;
		while (n < OVERLAY_RUN && blockmap_get(&s->places, *first + n))
			n++;
		s->next += n;
	}
	futex_unlock(&s->lock);
	return n;
}

static bool has_more(struct overlay_sending *s)
{
	uint64_t place;
	bool has;

	futex_lock(&s->lock);
	has = !s->err && blockmap_next(&s->places, &s->next, &place);
	futex_unlock(&s->lock);
	return has;
}

static int write_run(struct overlay_sending *s, uint64_t first, uint64_t n, const char *blocks)
{
	uint64_t off = first * OVERLAY_BLOCK;
	size_t len = off < s->size ? (size_t)min_u64(n * OVERLAY_BLOCK, s->size - off) : 0;

	if (len == 0)
		return 0;
	return s->write ? s->write(s, blocks, len, off) : behind_write(s->store, blocks, len, off);
}

static int send_slots(struct overlay_sending *s, uint64_t first, uint64_t n, char *blocks,
		      int unread);

static int send_run(struct overlay_sending *s, uint64_t first, uint64_t n, char *blocks)
{
	int err = 0;

	side_collect(&s->o->file, &s->places, first, n, OVERLAY_BLOCK, blocks, &err);
	if (err && s->skip)
		return send_slots(s, first, n, blocks, err);
	if (!err && s->check)
		err = s->check(s, first, n, blocks);
	return err ? err : write_run(s, first, n, blocks);
}

/* Sends the slots of a run that cannot be read, one after the other, because most of them can. */
static int send_slots(struct overlay_sending *s, uint64_t first, uint64_t n, char *blocks,
		      int unread)
{
	uint64_t width = s->o->head.block / OVERLAY_BLOCK, left = width - first % width;
	int err = 0;

	if (n <= left)
		return s->skip(s, first, unread), 0;
	for (; n > 0 && !err; first += left, n -= left, left = min_u64(n, width))
		err = send_run(s, first, left, blocks);
	return err;
}

/* ---- The crew ---- */

/* Has the crew join a pass, as many threads as the pass may have. */
static void call_crew(struct overlay_crew *crew, struct overlay_sending *s)
{
	crew->sending = s;
	crew->places = (int)min_u64(crew->nsenders, s->max_senders - 1);
	crew->called++;
	futex_wake(&crew->called, crew->places);
}

/* Sends runs until none is left. `crew`: threads to call if there are several; NULL: none. */
static void send_runs(struct overlay_sending *s, char *blocks, struct overlay_crew *crew)
{
	uint64_t first, n;

	while ((n = take_run(s, &first)) > 0) {
		int none = 0, err;

		if (crew && has_more(s)) {
			call_crew(crew, s);
			crew = NULL;
		}
		err = send_run(s, first, n, blocks);
		if (err)
			atomic_compare_exchange_strong(&s->err, &none, err);
	}
}

static bool take_place(struct overlay_crew *crew)
{
	int left = crew->places;

	while (left > 0 && !atomic_compare_exchange_weak(&crew->places, &left, left - 1))
		;
	return left > 0;
}

static void *run_sender(void *arg)
{
	struct overlay_sender *sender = arg;
	struct overlay_crew *crew = sender->crew;
	uint32_t seen;

	while (seen = crew->called, !crew->dismissed) {
		crew->present++;
		if (take_place(crew))
			send_runs(crew->sending, sender->blocks, NULL);
		if (--crew->present == 0)
			futex_wake(&crew->present, 1);
		futex_wait(&crew->called, seen, -1);
	}
	return NULL;
}

static char *map_blocks(void)
{
	char *at = raw_mmap(NULL, OVERLAY_RUN_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* If a thread cannot be started, a smaller crew does. */
void overlay_gather_crew(struct overlay *o, unsigned n)
{
	struct overlay_crew *crew = &o->crew;

	for (; crew->nsenders < n && o->store.caps & UMMAP_CAP_PARALLEL; crew->nsenders++) {
		struct overlay_sender *sender = &crew->senders[crew->nsenders];

		*sender = (struct overlay_sender){ .crew = crew, .blocks = map_blocks() };
		if (!sender->blocks)
			break;
		if (thread_start(&sender->thread, run_sender, sender)) {
			raw_munmap(sender->blocks, OVERLAY_RUN_BYTES);
			break;
		}
	}
}

void overlay_dismiss_crew(struct overlay *o)
{
	struct overlay_crew *crew = &o->crew;
	bool is_here = !behind_inherited(&o->store);

	crew->dismissed = true;
	crew->called++;
	futex_wake(&crew->called, INT_MAX);
	for (; crew->nsenders > 0; crew->nsenders--) {
		if (is_here)
			pthread_join(crew->senders[crew->nsenders - 1].thread, NULL);
		raw_munmap(crew->senders[crew->nsenders - 1].blocks, OVERLAY_RUN_BYTES);
	}
}

/* Takes back the places that no thread has taken before it waits for the threads that are
 * present. */
int overlay_send(struct overlay_sending *s)
{
	struct overlay_crew *crew = &s->o->crew;
	char *blocks = map_blocks();
	uint32_t present;

	if (!blocks)
		return -ENOMEM;
	send_runs(s, blocks, crew->nsenders > 0 ? crew : NULL);
	crew->places = 0;
	while ((present = crew->present) > 0)
		futex_wait(&crew->present, present, -1);
	raw_munmap(blocks, OVERLAY_RUN_BYTES);
	return s->err;
}

static int write_zeros(struct behind *store, uint64_t off, uint64_t end)
{
	static const char zeros[64 << 10];
	int err = 0;

	for (size_t n; off < end && !err; off += n) {
		n = (size_t)min_u64(end - off, sizeof(zeros));
		err = behind_write(store, zeros, n, off);
	}
	return err;
}

int overlay_shorten_store(struct behind *store, uint64_t size)
{
	uint64_t now;
	int err = behind_size(store, &now);

	if (err || now <= size)
		return err;
	err = behind_resize(store, size);
	return err == -EOPNOTSUPP ? write_zeros(store, size, now) : err;
}

int overlay_lengthen_store(struct behind *store, uint64_t size)
{
	uint64_t now;
	int err = behind_size(store, &now);

	if (err || now >= size)
		return err;
	err = behind_resize(store, size);
	return err == -EOPNOTSUPP ? behind_write(store, "", 1, size - 1) : err;
}
