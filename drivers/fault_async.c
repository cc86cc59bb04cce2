/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter `fault` over an asynchronous driver. A request is counted when it is submitted. One that is to
 * fail never reaches the next driver: it is held here, and comes back when its thread reaps. What the next
 * driver has no room for is done at once and held as well, because it is counted already.
 *
 * The places for requests are few, and all threads of a handle share them; submit takes fewer when they
 * run out. A place that a thread has taken is its own, so there is no lock.
 */
#include "fault.h"

#include <sys/syscall.h>
#include <unistd.h>

static int self(void)
{
	return (int)syscall(SYS_gettid);
}

static struct held *take_place(struct fault *f, int thread)
{
	for (struct held *p = f->held; p < f->held + HELD_MAX; p++) {
		int none = 0;

		if (atomic_compare_exchange_strong(&p->thread, &none, thread))
			return p;
	}
	return NULL;
}

/* Counts a request; false: it is on its way in the next driver, else it is done. */
static bool done_here(struct fault *f, struct ummap_io *io)
{
	unsigned op = io->op == UMMAP_IO_WRITE ? OP_WRITE : OP_READ;
	struct iovec iov = { io->buf, io->len };
	int taken;

	if (fault_fires(f, op)) {
		if (f->halfway)
			fault_move(f, op, &iov, 1, io->off, f->short_len);
		io->res = -f->err;
		return true;
	}
	taken = f->next.submit(f->h, &io, 1);
	if (taken > 0)
		return false;
	io->res = taken < 0 ? taken : fault_move(f, op, &iov, 1, io->off, UINT64_MAX);
	return true;
}

int fault_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct fault *f = h;
	int thread = self();
	unsigned i;

	for (i = 0; i < n; i++) {
		struct held *place = take_place(f, thread);

		if (!place)
			break;
		place->io = io[i];
		if (!done_here(f, io[i]))
			atomic_store(&place->thread, 0);
	}
	return (int)i;
}

static unsigned let_go(struct fault *f, struct ummap_io **done, unsigned max)
{
	int thread = self();
	unsigned n = 0;

	for (struct held *p = f->held; p < f->held + HELD_MAX && n < max; p++) {
		if (atomic_load(&p->thread) != thread)
			continue;
		done[n++] = p->io;
		atomic_store(&p->thread, 0);
	}
	return n;
}

int fault_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct fault *f = h;
	unsigned n = let_go(f, done, max);
	int got;

	if (n == max || (n > 0 && n >= min))
		return (int)n;
	got = f->next.reap(f->h, done + n, max - n, min - n);
	/* Those held are not lost by it: the error comes again. */
	if (got < 0)
		return n > 0 ? (int)n : got;
	for (unsigned i = n; i < n + (unsigned)got; i++) {
		if (done[i]->op == UMMAP_IO_WRITE && done[i]->res == 0)
			fault_written(f, done[i]->off + done[i]->len);
	}
	return (int)n + got;
}
