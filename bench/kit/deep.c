/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/deep.h"

struct deep *deep_create(int fd, size_t seg, unsigned depth)
{
	struct deep *d = calloc(1, sizeof(*d));
	struct iovec iov[MAX_DEPTH];
	int err;

	d->depth = depth;
	d->seg = seg;
	d->buffers = huge_memory(depth * seg);
	err = io_uring_queue_init(MAX_DEPTH, &d->ring, 0);
	if (err)
		die("io_uring: %s", strerror(-err));
	err = io_uring_register_files(&d->ring, &fd, 1);
	if (err)
		die("io_uring, to register a file: %s", strerror(-err));
	for (unsigned i = 0; i < depth; i++)
		iov[i] = (struct iovec){ d->buffers + i * seg, seg };
	err = io_uring_register_buffers(&d->ring, iov, depth);
	if (err)
		fprintf(stderr, "passes: the deep floor goes without registered buffers: %s\n",
			strerror(-err));
	d->registered = !err;
	return d;
}

static char *deep_buffer(const struct deep *d, size_t turn)
{
	return d->buffers + turn % d->depth * d->seg;
}

static void deep_send(struct deep *d, size_t turn, size_t off, bool write)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);
	unsigned i = (unsigned)(turn % d->depth);
	char *buf = deep_buffer(d, turn);

	if (!sqe)
		die("io_uring: the ring is full");
	if (d->registered && write)
		io_uring_prep_write_fixed(sqe, 0, buf, (unsigned)d->seg, off, (int)i);
	else if (d->registered)
		io_uring_prep_read_fixed(sqe, 0, buf, (unsigned)d->seg, off, (int)i);
	else if (write)
		io_uring_prep_write(sqe, 0, buf, (unsigned)d->seg, off);
	else
		io_uring_prep_read(sqe, 0, buf, (unsigned)d->seg, off);
	sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data64(sqe, i);
	d->state[i] = write ? DEEP_WRITING : DEEP_READING;
	d->flying++;
}

/* Submits the prepared requests and waits for at least one completion. */
static void deep_wait(struct deep *d)
{
	struct io_uring_cqe *cqe;
	int err = io_uring_submit_and_wait(&d->ring, 1);

	if (err < 0 && err != -EINTR)
		die("io_uring: %s", strerror(-err));
	while (!io_uring_peek_cqe(&d->ring, &cqe)) {
		unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);

		if (cqe->res != (int)d->seg)
			die("io_uring: a transfer of %zu gave %d", d->seg, cqe->res);
		d->state[i] = d->state[i] == DEEP_READING ? DEEP_READY : DEEP_FREE;
		d->flying--;
		io_uring_cqe_seen(&d->ring, cqe);
	}
}

/* Submits the reads of the next turns for which there are free buffers. */
static void deep_ahead(struct deep *d, const uint32_t *order, size_t turn, size_t turns)
{
	for (; d->sent < turns && d->sent < turn + d->depth &&
	       d->state[d->sent % d->depth] == DEEP_FREE;
	     d->sent++)
		deep_send(d, d->sent, order[d->sent] * d->seg, false);
	io_uring_submit(&d->ring);
}

char *deep_enter(struct deep *d, const uint32_t *order, size_t turn, size_t turns, bool reads)
{
	enum deep_state wanted = reads ? DEEP_READY : DEEP_FREE;

	if (reads)
		deep_ahead(d, order, turn, turns);
	while (d->state[turn % d->depth] != wanted) {
		deep_wait(d);
		if (reads)
			deep_ahead(d, order, turn, turns);
	}
	return deep_buffer(d, turn);
}

void deep_leave(struct deep *d, const uint32_t *order, size_t turn, bool writes)
{
	if (writes) {
		deep_send(d, turn, order[turn] * d->seg, true);
		io_uring_submit(&d->ring);
	} else {
		d->state[turn % d->depth] = DEEP_FREE;
	}
}

void deep_finish(struct deep *d)
{
	while (d->flying)
		deep_wait(d);
}
