/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Serves faults, for all engines. If the engine reports accesses by signals, the faulting thread
 * serves its own access. If the engine reports them by messages, threads of the library serve the
 * accesses of other threads, of the kernel and of other processes. Such a thread begins the loads
 * of all waiting accesses, submits them together, and maps each segment when its load is done. So
 * few threads keep many requests in flight. While a thread has loads in flight, it holds the locks
 * of their segments and therefore waits for nothing but storage; accesses that may have to wait for
 * something else are served after the loads are done. Takes the locks of segments.
 */
#include "paging/fault/fault.h"

#include "engine/copy.h"
#include "engine/engine.h"
#include "engine/discard.h"
#include "engine/messages.h"
#include "paging/residency/neighbors.h"
#include "paging/residency/readahead.h"
#include "paging/residency/evict.h"
#include "paging/mapping/inplace.h"
#include "paging/mapping/shared_copy.h"
#include "paging/mapping/handover.h"
#include "paging/residency/pagecache.h"
#include "paging/mapping/lookup.h"
#include "paging/fault/segment.h"
#include "paging/fault/stall.h"

/* ---- Poisoned slots ---- */

/*
 * A thread blocked on a userfaultfd message cannot receive an error code. If its load fails, the
 * slot of the segment is poisoned: it loses all rights, and the thread is woken. A thread of the
 * program then gets SIGSEGV, whose handler takes the error and raises SIGBUS. A system call fails
 * with EFAULT and does not take the error, so the background thread removes old poison: not before
 * its second round, because the first one may come before the woken thread has run.
 */

/* The caller has locked the segment. */
static void poison_locked(struct mapping *map, size_t i, struct seg *s, int err)
{
	map->fault.load_error = err;
	seg_change(s, SEG_POISON_OLD, SEG_POISONED);
	map_touch(map, i);
	map->fault.poisoned = true;
	map->engine->poison(map->engine, map_slot(map, i), map_slot_len(map, i));
}

/* Poisons the slot of segment i, which could not be loaded (err: -errno), and wakes the threads
 * that wait for the segment. */
static void poison_segment(struct mapping *map, size_t i, int err)
{
	struct seg *s = map_seg(map, i);

	seg_lock(s);
	/* Another thread may have mapped the segment in the meantime. */
	if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_INACTIVE))
		engine_wake(map->engine, map_slot(map, i), map_slot_len(map, i));
	else
		poison_locked(map, i, s, err);
	seg_unlock(s);
}

/* Refuses a store to segment i. Only the handler of SIGSEGV can distinguish the store from
 * loads, which it still serves. So the segment is made inactive and its slot is poisoned; the
 * segment stays valid. If it cannot be made inactive, the store is served. */
static void refuse_store(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	int err = seg_has(s, SEG_VALID) ? 0 : seg_fault(map, i, false);

	if (err) {
		poison_segment(map, i, err);
		return;
	}
	seg_lock(s);
	if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_INACTIVE)) {
		cache_remove(&map->member, s);
		err = seg_deactivate(map, i, s);
	}
	/* Without an error: a load that finds the segment evicted tries again. */
	if (!err && seg_has(s, SEG_VALID))
		poison_locked(map, i, s, 0);
	seg_unlock(s);
	if (err)
		seg_fault(map, i, true);
	else
		engine_wake(map->engine, map_slot(map, i), map_slot_len(map, i));
}

/* Returns the error with which loading segment i has failed, or 0, and removes the poison of its
 * slot, so that the next access tries again. */
static int take_error(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	int err = 0;

	seg_lock(s);
	/* A segment that has become inactive in the meantime was loaded. */
	if (seg_has(s, SEG_POISONED) && !seg_has(s, SEG_VALID) && seg_unpoison(map, i, s) == 0)
		err = map->fault.load_error;
	seg_unlock(s);
	return err;
}

/* Removes the poison of a slot if it is old, or at once if `now`. */
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

/* ---- Faults reported by signals ---- */

static void (*_Atomic on_error)(void *addr, int error);
static int (*_Atomic on_store)(void *addr);

void fault_onerror(void (*fn)(void *addr, int error))
{
	on_error = fn;
}

void fault_onstore(int (*fn)(void *addr))
{
	on_store = fn;
}

bool fault_has_onstore(void)
{
	return on_store;
}

static enum fault_answer ask_about_store(void *addr)
{
	int (*may_try_again)(void *) = on_store;

	return may_try_again && may_try_again(addr) ? FAULT_SERVED : FAULT_FOREIGN;
}

/* Serves an access of the calling thread to segment i. Returns 0, or the error with which the
 * access fails. */
static int serve_signal(struct mapping *map, size_t i, const struct fault *fault)
{
	/* SIGBUS in a page-cache mapping: the kernel cannot read the page, or the file has become
	 * shorter. Loading the segment returns the error. */
	bool unreadable = fault->signal == SIGBUS && seg_has(map_seg(map, i), SEG_PAGECACHE);
	int err;

	if (!fault->write && !unreadable && pagecache_may(map) && pagecache_map(map, i))
		return 0;
	err = map->engine->poison ? take_error(map, i) : 0;
	if (err)
		return err;
	if (!neighbors_come(map))
		readahead_fault(map, i);
	return seg_fault(map, i, fault->write);
}

/* Handles a store that must not be served now, and ends the use of the mapping. Returns 0 if the
 * access must be tried again, after the thread has handled signals; or the error with which the
 * store fails. */
static int defer_own_store(struct mapping *map)
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
	void (*report)(void *, int) = on_error;
	size_t i;
	int err;

	if (!map)
		return handover_arrived(fault->addr) ? FAULT_SERVED : FAULT_FOREIGN;
	/* A SIGBUS is the library's if the mapping may have page-cache mappings, or if its engine
	 * or the store raises SIGBUS. */
	if (fault->signal == SIGBUS &&
	    !(map->in_place || map->engine->signal == SIGBUS || pagecache_may(map))) {
		map_leave(map);
		return FAULT_FOREIGN;
	}
	if (fault->write && !map->writable) {
		map_leave(map);
		return ask_about_store(fault->addr);
	}
	if (map->in_place && !map->copy) {
		err = inplace_fault(map, fault->addr, fault->signal == SIGBUS);
		map_leave(map);
		return err ? FAULT_FOREIGN : FAULT_SERVED;
	}
	i = (size_t)((char *)fault->addr - map->range) >> map->shift;
	if (map->copy) {
		err = copy_load(map, i);
		map_leave(map);
	} else if (fault->write && stall_must_wait(map, i)) {
		err = defer_own_store(map);
	} else {
		err = serve_signal(map, i, fault);
		map_leave(map);
	}
	if (!err)
		return FAULT_SERVED;
	fault->error = err;
	/* copy_bytes returns the error to its caller. */
	if (report && !copy_covers(fault->addr))
		report(fault->addr, -err);
	return FAULT_FAILED;
}

/* ---- Faults reported by messages ---- */

/* A thread that serves messages. */
struct server {
	struct seg_load loads[MAX_MESSAGE_LOADS];    /* loads; unused if `map` is NULL */
	struct ummap_io *unsent[MAX_MESSAGE_LOADS];  /* requests that are not submitted yet */
	unsigned in_use, unsent_count;               /* numbers of loads and of unsent requests */
	struct store *store;                         /* store of all the loads */
};

/* Unlocks the segment of a load that has ended (err: -errno or 0). */
static void end_load(struct server *v, struct seg_load *l, int err)
{
	struct mapping *map = l->map;

	map_unlock(map, l->i, l->io.owner);
	if (err)
		poison_segment(map, l->i, err);
	map_leave(map);
	l->map = NULL;
	v->in_use--;
}

/* Maps the segments of n loads whose requests are done. The copies that their frames leave behind
 * are discarded together. */
static void finish_loads(struct server *v, struct ummap_io **done, unsigned n)
{
	const struct mapping *map = container_of(done[0], struct seg_load, io)->map;
	int err[MAX_MESSAGE_LOADS];

	discard_batch_begin(budget_batch_bytes(map->member.least));
	for (unsigned k = 0; k < n; k++)
		err[k] = seg_load_end(container_of(done[k], struct seg_load, io));
	discard_batch_end();
	for (unsigned k = 0; k < n; k++)
		end_load(v, container_of(done[k], struct seg_load, io), err[k]);
}

/* Ends all loads with an error of the driver. */
static void fail_loads(struct server *v, int err)
{
	for (struct seg_load *l = v->loads; l < v->loads + MAX_MESSAGE_LOADS; l++) {
		struct ummap_io *io = &l->io;

		if (!l->map)
			continue;
		io->res = err;
		finish_loads(v, &io, 1);
	}
	v->unsent_count = 0;
}

/* Waits until at least one submitted load is done. */
static void await_loads(struct server *v)
{
	struct ummap_io *done[MAX_MESSAGE_LOADS];
	int n = io_end(v->store, done, MAX_MESSAGE_LOADS);

	if (n < 0)
		fail_loads(v, n);
	else
		finish_loads(v, done, (unsigned)n);
}

/* Submits the unsent requests. The driver may take a part of them now, and the rest later. If it
 * takes none and has none in flight, the last one is run at once. */
static void submit_loads(struct server *v)
{
	unsigned sent = io_begin(v->store, v->unsent, v->unsent_count);
	struct mapping *map = container_of(v->unsent[0], struct seg_load, io)->map;

	v->unsent_count -= sent;
	for (unsigned k = 0; k < v->unsent_count; k++)
		v->unsent[k] = v->unsent[sent + k];
	/* While the reads are in flight, replenish the inactive segments. */
	if (sent)
		evict_replenish(map, sent);
	if (v->in_use == v->unsent_count) {
		struct ummap_io *io = v->unsent[--v->unsent_count];
		struct io_count unused = { 0 };

		io_run(v->store, io, 1, false, &unused);
		finish_loads(v, &io, 1);
	}
}

/* Ends all loads. */
static void drain_loads(struct server *v)
{
	messages_release_turn();
	while (v->in_use > 0) {
		if (v->unsent_count)
			submit_loads(v);
		else
			await_loads(v);
	}
}

/* Begins to serve an access, or serves it. Returns false if seg_fault must serve the access after
 * all loads have ended, because it may wait for something other than storage. */
static bool begin_load(struct server *v, struct mapping *map, size_t i, bool write)
{
	struct store *store = map->backings[seg_backing(map_seg(map, i))].store;
	struct seg_load *l = v->loads;
	int err;

	/* With UMMAP_WRITERS, a store needs another frame, for the twin. */
	if (neighbors_come(map) || !io_overlaps(store) || (v->in_use && v->store != store) ||
	    (write && map->writers))
		return false;
	while (l->map)
		l++;
	err = seg_load_begin(map, i, write, l);
	if (err == 1) {
		v->store = store;
		v->unsent[v->unsent_count++] = &l->io;
		v->in_use++;
		return true;
	}
	l->map = NULL;
	if (err)
		return false;
	map_leave(map);
	return true;
}

/* Handles a store that must not be served now. The thread that waits for it is woken when this
 * may have changed (stall.c); or at once, and then finds that it cannot access the slot. */
static void defer_store(struct server *v, struct mapping *map, size_t i)
{
	if (!map->bus_when_full) {
		stall_note_wait(map);
	} else {
		drain_loads(v);
		refuse_store(map, i);
	}
	map_leave(map);
}

static void serve_message(struct server *v, const struct fault *fault)
{
	struct mapping *map = map_find_now(fault->addr);
	bool write;
	size_t i;
	int err;

	/* The mapping has ended, or another thread changes it, and wakes the waiting threads. */
	if (!map)
		return;
	/* The access is from before the mapping was put in place, and its thread has been woken. */
	if (map->in_place) {
		map_leave(map);
		return;
	}
	/* A debugger may store to a read-only mapping: the kernel gives it a copy of the page. */
	write = fault->write && map->writable;
	i = (size_t)((char *)fault->addr - map->range) >> map->shift;
	if (write && stall_must_wait(map, i)) {
		defer_store(v, map, i);
		return;
	}
	if (!neighbors_come(map))
		readahead_fault(map, i);
	if (begin_load(v, map, i, write))
		return;
	drain_loads(v);
	err = seg_fault(map, i, write);
	if (err)
		poison_segment(map, i, err);
	map_leave(map);
}

void *fault_by_message(void *unused)
{
	struct server v = { .in_use = 0 };
	struct fault fault;

	(void)unused;
	for (;;) {
		if (v.in_use < MAX_MESSAGE_LOADS && messages_next(&fault, v.in_use == 0)) {
			serve_message(&v, &fault);
			continue;
		}
		if (v.in_use == 0)
			continue;
		if (v.unsent_count)
			submit_loads(&v);
		if (v.in_use < MIN_LOADS_TO_WAIT)
			messages_release_turn();
		if (v.in_use > v.unsent_count)
			await_loads(&v);
	}
	return NULL;
}
