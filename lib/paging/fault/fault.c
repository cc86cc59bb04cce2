/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Serves faults, for all engines. By signal, the faulting thread serves its own access. By message, threads of the
 * library serve those of any thread, of the kernel or of other processes: each begins the loads of all waiting
 * accesses, submits them together, and maps each segment when its load is done; then it begins those that have arrived
 * meanwhile. So few threads keep many requests in flight. While a thread has loads in flight it holds the locks of
 * their segments, so it waits for nothing but storage then: what might take longer it does after they are done. Takes
 * the locks of segments.
 */
#include "paging/fault/fault.h"

#include "engine/copy.h"
#include "engine/engine.h"
#include "engine/discard.h"
#include "engine/messages.h"
#include "paging/residency/readahead.h"
#include "paging/residency/evict.h"
#include "paging/mapping/inplace.h"
#include "paging/mapping/handover.h"
#include "paging/residency/pagecache.h"
#include "paging/mapping/lookup.h"
#include "paging/fault/segment.h"
#include "paging/fault/stall.h"

/* ---- Poison ---- Who waits for an access by message cannot be given an error. So the place of the segment loses all
 * its rights: a thread that tries again gets SIGSEGV, which is ours to turn into SIGBUS, and a system call EFAULT. One
 * thread takes the error; a system call leaves it, and so it is forgotten after a while: in the second round after it,
 * since the first may be now, before the thread has had its turn.  */

/* Segment i could not be loaded (err): from now on its place cannot be accessed, and a waiting thread gets the error by
 * trying it. */
static void poison(struct mapping *map, size_t i, int err)
{
	struct seg *s = map_seg(map, i);

	seg_lock(s);
	if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_INACTIVE)) {
		/* Somebody was luckier. */
		engine_wake(map->engine, map_place(map, i), map_place_len(map, i));
	} else {
		map->fault.load_error = err;
		seg_change(s, SEG_POISON_OLD, SEG_POISONED);
		map_touch(map, i);
		map->fault.poisoned = true;
		map->engine->poison(map->engine, map_place(map, i), map_place_len(map, i));
	}
	seg_unlock(s);
}

/* Refuses a store to segment i. Only the handler of SIGSEGV can distinguish the store from
 * loads, which it still serves. So the segment is made inactive and its place is poisoned; the
 * segment stays valid. If it cannot be made inactive, the store is served. */
static void refuse_store(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	int err = seg_has(s, SEG_VALID) ? 0 : seg_fault(map, i, false);

	if (err) {
		poison(map, i, err);
		return;
	}
	seg_lock(s);
	if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_INACTIVE)) {
		cache_remove(&map->member, s);
		err = seg_deactivate(map, i, s);
	}
	if (!err && seg_has(s, SEG_VALID)) {
		/* A load that finds the segment evicted is tried again. */
		map->fault.load_error = 0;
		seg_change(s, SEG_POISON_OLD, SEG_POISONED);
		map->fault.poisoned = true;
		map->engine->poison(map->engine, map_place(map, i), map_place_len(map, i));
	}
	seg_unlock(s);
	if (err)
		seg_fault(map, i, true);
	else
		engine_wake(map->engine, map_place(map, i), map_place_len(map, i));
}

/* Somebody has found out, by SIGSEGV: takes the error, so that the next one tries again. 0: there is none. */
static int take_error(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	int err = 0;

	if (!map->engine->poison)
		return 0;
	seg_lock(s);
	/* One that came to the inactive ones meanwhile needs no error. */
	if (seg_has(s, SEG_POISONED) && !seg_has(s, SEG_VALID) && seg_unpoison(map, i, s) == 0)
		err = map->fault.load_error;
	seg_unlock(s);
	return err;
}

/* In this round, or in the next one. Also one that came to the inactive ones meanwhile. */
static void unpoison_old(struct mapping *map, size_t i, struct seg *s, bool now)
{
	seg_lock(s);
	if (seg_has(s, SEG_POISONED) && (now || seg_has(s, SEG_POISON_OLD))) {
		if (seg_unpoison(map, i, s) < 0)
			map->fault.poisoned = true;
	} else if (seg_has(s, SEG_POISONED)) {
		seg_change(s, 0, SEG_POISON_OLD);
		map->fault.poisoned = true;
	}
	seg_unlock(s);
}

void fault_unpoison(struct mapping *map, bool now)
{
	if (!atomic_exchange(&map->fault.poisoned, false))
		return;
	for (size_t i = map_next_touched(map, 0); i < map->segs; i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		if (seg_has(s, SEG_POISONED))
			unpoison_old(map, i, s, now);
	}
}

/* ---- By signal ---- */

static void (*_Atomic on_error)(void *addr, int error);

void fault_onerror(void (*fn)(void *addr, int error))
{
	on_error = fn;
}

/* What is shown there and raises SIGBUS the kernel cannot load, or the file has lost it: reading it tells. */
static bool show_pages(struct mapping *map, size_t i, const struct fault *fault)
{
	return !fault->write && !(fault->signal == SIGBUS && seg_has(map_seg(map, i), SEG_PAGECACHE)) && pagecache_map(map, i);
}

static int serve_by_signal(struct mapping *map, size_t i, bool write)
{
	int err = take_error(map, i);

	if (err)
		return err;
	readahead_fault(map, i);
	return seg_fault(map, i, write);
}

/* Handles a store that must not be served now, and ends the use of the mapping. Returns 0 if the
 * access must be tried again, after the thread has handled signals; or the error with which the
 * store fails. */
static int store_to_full(struct mapping *map)
{
	int err = map->bus_when_full ? -writeback_error(map) : 0;

	if (!map->bus_when_full)
		stall_note_wait(map);
	map_leave(map);
	if (!err)
		stall_sleep();
	return err;
}

enum fault_answer fault_by_signal(struct fault *fault)
{
	struct mapping *map = map_find(fault->addr);
	void (*tell)(void *, int) = on_error;
	size_t i;
	int err;

	if (!map)
		return handover_arrived(fault->addr) ? FAULT_SERVED : FAULT_FOREIGN;
	/* What is not shown from the page cache, and raises no SIGBUS, has nothing to serve there. */
	if ((fault->write && !map->writable) ||
	    (fault->signal == SIGBUS &&
	     !(map->in_place || map->engine->signal == SIGBUS || pagecache_may(map)))) {
		map_leave(map);
		return FAULT_FOREIGN;
	}
	if (map->in_place) {
		err = inplace_fault(map, fault->addr, fault->signal == SIGBUS);
		map_leave(map);
		return err ? FAULT_FOREIGN : FAULT_SERVED;
	}
	i = (size_t)((char *)fault->addr - map->range) >> map->shift;
	if (fault->write && stall_must_wait(map, i)) {
		err = store_to_full(map);
	} else {
		err = show_pages(map, i, fault) ? 0 : serve_by_signal(map, i, fault->write);
		map_leave(map);
	}
	if (!err)
		return FAULT_SERVED;
	fault->error = err;
	/* A copy returns the error to its caller. */
	if (tell && !copy_covers(fault->addr))
		tell(fault->addr, -err);
	return FAULT_FAILED;
}

/* ---- By message ---- */

struct server {
	struct seg_load loads[MAX_MESSAGE_LOADS];  /* free if their set is NULL */
	struct ummap_io *next[MAX_MESSAGE_LOADS];  /* those that are not sent yet */
	unsigned n, unsent;
	struct store *store;          /* of all of them */
};

static void leave(struct server *v, struct seg_load *l, int err)
{
	struct mapping *map = l->map;

	seg_load_unlock(l);
	if (err)
		poison(map, l->i, err);
	map_leave(map);
	l->map = NULL;
	v->n--;
}

/* Loads that are done appear together. */
static void finish(struct server *v, struct ummap_io **done, unsigned n)
{
	const struct mapping *map = container_of(done[0], struct seg_load, io)->map;
	int err[MAX_MESSAGE_LOADS];

	discard_batch_begin(budget_batch_bytes(map->member.least));
	for (unsigned k = 0; k < n; k++)
		err[k] = seg_load_end(container_of(done[k], struct seg_load, io));
	discard_batch_end();
	for (unsigned k = 0; k < n; k++)
		leave(v, container_of(done[k], struct seg_load, io), err[k]);
}

/* The driver has failed as a whole. */
static void fail_all(struct server *v, int err)
{
	for (struct seg_load *l = v->loads; l < v->loads + MAX_MESSAGE_LOADS; l++) {
		struct ummap_io *io = &l->io;

		if (!l->map)
			continue;
		io->res = err;
		finish(v, &io, 1);
	}
	v->unsent = 0;
}

static void await(struct server *v)
{
	struct ummap_io *done[MAX_MESSAGE_LOADS];
	int n = io_end(v->store, done, MAX_MESSAGE_LOADS);

	if (n < 0)
		fail_all(v, n);
	else
		finish(v, done, (unsigned)n);
}

/* What the driver does not take it takes later; if it takes nothing at all, it gets them one by one. */
static void send_all(struct server *v)
{
	unsigned sent = io_begin(v->store, v->next, v->unsent), left = v->unsent - sent;
	struct mapping *map = container_of(v->next[0], struct seg_load, io)->map;

	for (unsigned k = 0; k < left; k++)
		v->next[k] = v->next[sent + k];
	v->unsent = left;
	/* While they are on their way, others take the places of the frames that they took. */
	if (sent)
		evict_resupply(map, sent);
	if (v->n == left) {
		struct ummap_io *io = v->next[--v->unsent];
		struct io_count unused = { 0 };

		io_run(v->store, io, 1, false, &unused);
		finish(v, &io, 1);
	}
}

static void drain(struct server *v)
{
	messages_hand_off();
	while (v->n > 0) {
		if (v->unsent)
			send_all(v);
		else
			await(v);
	}
}

/* Begins the access; false: it has to wait for something else than storage (a twin's frame, say), or by itself. */
static bool begin(struct server *v, struct mapping *map, size_t i, bool write)
{
	struct store *store = map->backings[seg_backing(map_seg(map, i))].store;
	struct seg_load *l = v->loads;
	int err;

	if (!io_overlaps(store) || (v->n && v->store != store) || (write && map->writers))
		return false;
	while (l->map)
		l++;
	err = seg_load_begin(map, i, write, l);
	if (err == 1) {
		v->store = store;
		v->next[v->unsent++] = &l->io;
		v->n++;
		return true;
	}
	l->map = NULL;
	if (err)
		return false;
	map_leave(map);
	return true;
}

/* Handles a store that must not be served now. The thread that waits for it is woken when this
 * may have changed (stall.c); or at once, and then finds that it cannot access the place. */
static void serve_full(struct server *v, struct mapping *map, size_t i)
{
	if (!map->bus_when_full) {
		stall_note_wait(map);
	} else {
		drain(v);
		refuse_store(map, i);
	}
	map_leave(map);
}

static void serve(struct server *v, const struct fault *fault)
{
	struct mapping *map = map_find_now(fault->addr);
	bool write;
	size_t i;
	int err;

	/* Where there is no mapping any more, or it is being changed, waiting threads are woken at the end of that. */
	if (!map)
		return;
	/* A debugger may store where the program may not: to a copy of its own. */
	write = fault->write && map->writable;
	i = (size_t)((char *)fault->addr - map->range) >> map->shift;
	if (write && stall_must_wait(map, i)) {
		serve_full(v, map, i);
		return;
	}
	readahead_fault(map, i);
	if (begin(v, map, i, write))
		return;
	drain(v);
	err = seg_fault(map, i, write);
	if (err)
		poison(map, i, err);
	map_leave(map);
}

void *fault_by_message(void *unused)
{
	struct server v = { .n = 0 };
	struct fault fault;

	(void)unused;
	for (;;) {
		if (v.n < MAX_MESSAGE_LOADS && messages_next(&fault, v.n == 0)) {
			serve(&v, &fault);
			continue;
		}
		if (v.n == 0)
			continue;
		if (v.unsent)
			send_all(&v);
		if (v.n < MIN_LOADS_TO_WAIT)
			messages_hand_off();
		if (v.n > v.unsent)
			await(&v);
	}
	return NULL;
}
