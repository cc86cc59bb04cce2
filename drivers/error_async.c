/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter error over an asynchronous driver. A request is counted when it is submitted. A
 * request that fails never reaches the next driver: the filter holds it until its thread reaps. If
 * the next driver accepts no request, the filter makes the transfer at once and holds the request,
 * because it has been counted. error_submit accepts fewer requests if no place to hold them is
 * free.
 */
#include "error.h"

/* Counts a request. Returns whether the request has ended; otherwise, it is in the next driver. */
static bool end_or_pass(struct error *f, struct ummap_io *io)
{
	unsigned op = io->op == UMMAP_IO_WRITE ? OP_WRITE : OP_READ;
	struct iovec iov = { io->buf, io->len };
	int taken;

	if (error_fires(f, op)) {
		if (f->halfway)
			error_move(f, op, &iov, 1, io->off, f->short_len);
		io->res = -f->err;
		return true;
	}
	taken = behind_submit(&f->next, io);
	if (taken > 0)
		return false;
	io->res = taken < 0 ? taken : error_move(f, op, &iov, 1, io->off, UINT64_MAX);
	return true;
}

int error_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct error *f = h;
	int thread = held_self();
	unsigned i;

	for (i = 0; i < n; i++) {
		struct held *place = held_take(f->held, thread);

		if (!place)
			break;
		place->io = io[i];
		if (!end_or_pass(f, io[i]))
			held_free(place);
	}
	return (int)i;
}

int error_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct error *f = h;

	return held_reap(f->held, &f->next, done, max, min);
}
