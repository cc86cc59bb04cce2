/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accesses that come by userfaultfd, from any thread, the kernel or other processes. A thread here begins the loads of
 * all accesses that wait, sends them together, and publishes each as it arrives; what comes meanwhile it begins next.
 * So few threads keep many requests on their way. While a thread has loads on their way it holds their segments, so it
 * waits for nothing but storage then: whatever might take longer it does when they are done.
 */
#include "paging/server.h"

#include "paging/ahead.h"
#include "engine/engine.h"
#include "paging/evict.h"
#include "paging/map.h"
#include "paging/refuse.h"
#include "paging/seg.h"

/* Loads that a thread has on their way, and how many of them are enough to wait for the next one to be done before
 * looking for more to do: it will not be long. With fewer, another thread looks meanwhile. */
#define MOST 16
#define ENOUGH 4

struct server {
	struct seg_load loads[MOST];  /* free if their set is NULL */
	struct ummap_io *next[MOST];  /* those that are not sent yet */
	unsigned n, unsent;
	struct store *store;          /* of all of them */
};

static void leave(struct server *v, struct seg_load *l, int err)
{
	struct set *set = l->set;

	seg_leave(l);
	if (err)
		refuse(set, l->i, err);
	set_put(set);
	l->set = NULL;
	v->n--;
}

/* Loads that are done appear together. */
static void finish(struct server *v, struct ummap_io **done, unsigned n)
{
	int err[MOST];

	engine_batch_begin();
	for (unsigned k = 0; k < n; k++)
		err[k] = seg_end(container_of(done[k], struct seg_load, io));
	engine_batch_end();
	for (unsigned k = 0; k < n; k++)
		leave(v, container_of(done[k], struct seg_load, io), err[k]);
}

/* The driver has failed as a whole. */
static void fail_all(struct server *v, int err)
{
	for (struct seg_load *l = v->loads; l < v->loads + MOST; l++) {
		struct ummap_io *io = &l->io;

		if (!l->set)
			continue;
		io->res = err;
		finish(v, &io, 1);
	}
	v->unsent = 0;
}

static void await(struct server *v)
{
	struct ummap_io *done[MOST];
	int n = io_end(v->store, done, MOST);

	if (n < 0)
		fail_all(v, n);
	else
		finish(v, done, (unsigned)n);
}

/* What the driver does not take it takes later; if it takes nothing at all, it gets them one by one. */
static void send_all(struct server *v)
{
	unsigned sent = io_begin(v->store, v->next, v->unsent), left = v->unsent - sent;
	struct set *set = container_of(v->next[0], struct seg_load, io)->set;

	for (unsigned k = 0; k < left; k++)
		v->next[k] = v->next[sent + k];
	v->unsent = left;
	/* While they are on their way, others take the places of the frames that they took. */
	if (sent)
		evict_resupply(set, sent);
	if (v->n == left) {
		struct ummap_io *io = v->next[--v->unsent];
		struct io_count unused = { 0 };

		io_run(v->store, io, 1, false, &unused);
		finish(v, &io, 1);
	}
}

static void drain(struct server *v)
{
	engine_hand_off();
	while (v->n > 0) {
		if (v->unsent)
			send_all(v);
		else
			await(v);
	}
}

/* Begins the access; false: it has to wait for something else than storage (a twin's frame, say), or by itself. */
static bool begin(struct server *v, struct set *set, size_t i, bool write)
{
	struct store *store = set->targets[seg_target(set_seg(set, i))].store;
	struct seg_load *l = v->loads;
	int err;

	if (!io_overlaps(store) || (v->n && v->store != store) || (write && set->writers))
		return false;
	while (l->set)
		l++;
	err = seg_begin(set, i, write, l);
	if (err == 1) {
		v->store = store;
		v->next[v->unsent++] = &l->io;
		v->n++;
		return true;
	}
	l->set = NULL;
	if (err)
		return false;
	set_put(set);
	return true;
}

static void serve(struct server *v, const struct chain_fault *fault)
{
	struct map *map = map_try(fault->addr);
	struct set *set = map ? &map->set : NULL;
	bool write;
	size_t i;
	int err;

	/* Where there is no mapping any more, or it is being changed, whoever waits is woken in the end. */
	if (!set)
		return;
	/* A debugger may store where the program may not: to a copy of its own. */
	write = fault->write && set->writable;
	i = (size_t)((char *)fault->addr - set->view) >> set->shift;
	ahead_fault(set, i);
	if (begin(v, set, i, write))
		return;
	drain(v);
	err = seg_fault(set, i, write);
	if (err)
		refuse(set, i, err);
	set_put(set);
}

void *server_run(void *unused)
{
	struct server v = { .n = 0 };
	struct chain_fault fault;

	(void)unused;
	for (;;) {
		if (v.n < MOST && engine_next(&fault, v.n == 0)) {
			serve(&v, &fault);
			continue;
		}
		if (v.n == 0)
			continue;
		if (v.unsent)
			send_all(&v);
		if (v.n < ENOUGH)
			engine_hand_off();
		if (v.n > v.unsent)
			await(&v);
	}
	return NULL;
}
