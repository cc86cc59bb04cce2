/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that a filter over an asynchronous driver has done itself, until their thread reaps
 * them. All threads of a handle share a few places. A place that a thread has taken is its own, so
 * there is no lock.
 */
#ifndef DRIVERS_HELD_H
#define DRIVERS_HELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "behind.h"

#define HELD_MAX 16

struct held {
	_Atomic int thread;        /* whose it is; 0: the place is free */
	struct ummap_io *io;
};

static inline int held_self(void)
{
	return (int)syscall(SYS_gettid);
}

/* NULL: none is free. */
static inline struct held *held_take(struct held places[HELD_MAX], int thread)
{
	for (struct held *p = places; p < places + HELD_MAX; p++) {
		int none = 0;

		if (atomic_compare_exchange_strong(&p->thread, &none, thread))
			return p;
	}
	return NULL;
}

static inline void held_free(struct held *place)
{
	atomic_store(&place->thread, 0);
}

/* Takes the requests of this thread, at most max. Returns how many. */
static inline unsigned held_let_go(struct held places[HELD_MAX], struct ummap_io **done,
				   unsigned max)
{
	int thread = 0;
	unsigned n = 0;

	for (struct held *p = places; p < places + HELD_MAX && n < max; p++) {
		int owner = atomic_load(&p->thread);

		/* Usually all places are free, and the thread ID is not needed. */
		if (owner && !thread)
			thread = held_self();
		if (!owner || owner != thread)
			continue;
		done[n++] = p->io;
		held_free(p);
	}
	return n;
}

/*
 * The call `submit` of such a filter. The first requests for which is_for_store is true go to the
 * driver. If there are none, the filter's own calls do the requests up to the next such one.
 */
static inline int held_submit(struct held places[HELD_MAX], struct behind *b,
			      const struct ummap_driver *own, void *h,
			      bool (*is_for_store)(void *h, const struct ummap_io *io),
			      struct ummap_io **io, unsigned n)
{
	unsigned i = 0;
	int thread;

	while (i < n && is_for_store(h, io[i]))
		i++;
	if (i > 0)
		return b->driver.submit(b->h, io, i);
	thread = held_self();
	/* The store may have got the first request's bytes meanwhile. */
	for (; i < n && (i == 0 || !is_for_store(h, io[i])); i++) {
		struct held *place = held_take(places, thread);

		if (!place)
			break;
		if (io[i]->op == UMMAP_IO_WRITE)
			io[i]->res = own->write(h, io[i]->buf, io[i]->len, io[i]->off);
		else
			io[i]->res = own->read(h, io[i]->buf, io[i]->len, io[i]->off);
		place->io = io[i];
	}
	return (int)i;
}

/* The call `reap` of such a filter: first the requests that are held, then those of the driver. */
static inline int held_reap(struct held places[HELD_MAX], struct behind *b, struct ummap_io **done,
			    unsigned max, unsigned min)
{
	unsigned n = held_let_go(places, done, max);
	int got;

	if (n == max || (n > 0 && n >= min))
		return (int)n;
	got = behind_reap(b, done + n, max - n, min - n);
	/* After an error, the requests that were held here are reported first. */
	if (got < 0)
		return n > 0 ? (int)n : got;
	return (int)n + got;
}

#endif
