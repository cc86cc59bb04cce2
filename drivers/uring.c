/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver uring: regular files and block devices through io_uring, with many requests in flight
 * by few system calls. Only direct transfers use a ring. Transfers at the end of a file, of
 * unaligned bytes, or of bytes in the page cache are small or fast: uring_submit completes them
 * itself, by the calls that the driver posix uses (file.c).
 *
 * The process has a few rings for all handles. A thread that submits requests takes a ring, which
 * no other thread uses until the first thread has reaped all its requests. So a ring needs no lock.
 * A thread must reap its requests before the library returns, because a completion could interrupt
 * a later system call of the program.
 */
#include "file.h"

#include "common/fork.h"
#include "common/futex.h"
#include "keys.h"
#include "store_check.h"

#include <errno.h>
#include <liburing.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RINGS 16
#define MAX_DEPTH 64            /* requests of a thread in flight */
#define MAX_FILES 256           /* registered files; other handles use their descriptors */

extern const struct ummap_driver ummap_driver_uring;

/* A request in the ring. */
struct slot {
	struct ummap_io *io;                 /* request; NULL: the slot is free */
	struct file *file;                   /* file of the request */
};

struct ring {
	struct io_uring uring;               /* ring of the kernel */
	atomic_bool taken;                   /* whether a thread has the ring */
	bool has_files;                      /* whether files can be registered */
	unsigned in_flight;                  /* number of requests in `slots` */
	unsigned n_done;                     /* number of requests in `done` */
	struct slot slots[MAX_DEPTH];        /* requests in flight */
	struct ummap_io *done[MAX_DEPTH];    /* requests that uring_submit has completed */
};

static struct ring rings[MAX_RINGS];
static unsigned ring_count;
static _Atomic pid_t ring_owner;             /* process of the rings: a child makes its own */
static _Atomic uint32_t rings_lock;          /* lock of the rings' number and registered files */
static bool file_used[MAX_FILES];            /* whether the number of a registered file is in use */
/* The ring that this thread has taken. */
static _Thread_local struct ring *own_ring __attribute__((tls_model("initial-exec")));

/* The child must find the table of rings consistent. */
__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_RINGS, &rings_lock, NULL, NULL);
}

/* ---- Rings ---- */

static int make_ring(struct ring *r)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL
	};
	int err = io_uring_queue_init_params(MAX_DEPTH, &r->uring, &params);

	if (err == -EINVAL) {
		memset(&params, 0, sizeof(params));
		err = io_uring_queue_init_params(MAX_DEPTH, &r->uring, &params);
	}
	if (err)
		return err;
	r->uring.ring_fd = r->uring.enter_ring_fd = file_away(r->uring.ring_fd);
	r->has_files = io_uring_register_files_sparse(&r->uring, MAX_FILES) == 0;
	r->in_flight = r->n_done = 0;
	memset(r->slots, 0, sizeof(r->slots));
	atomic_store(&r->taken, false);
	return 0;
}

/* A ring is made and used by different system calls, and a filter of system calls may forbid
 * each. */
static int try_ring(struct ring *r)
{
	struct io_uring_cqe *cqe;
	int submitted;

	io_uring_prep_nop(io_uring_get_sqe(&r->uring));
	do
		submitted = io_uring_submit_and_wait(&r->uring, 1);
	while (submitted == -EINTR || submitted == -EAGAIN);
	if (submitted >= 0 && io_uring_peek_cqe(&r->uring, &cqe) == 0)
		io_uring_cqe_seen(&r->uring, cqe);
	else
		io_uring_queue_exit(&r->uring);
	return submitted < 0 ? submitted : 0;
}

/* One ring suffices: a thread that finds no free ring transfers without. */
static int make_rings_locked(struct ummap_geom *geom)
{
	int err = 0;

	if (atomic_load(&ring_owner) == getpid())
		return 0;
	/* A forked child closes its copies of the parent's rings. */
	while (ring_count > 0)
		io_uring_queue_exit(&rings[--ring_count].uring);
	own_ring = NULL;
	memset(file_used, 0, sizeof(file_used));
	while (ring_count < MAX_RINGS && !err) {
		err = make_ring(&rings[ring_count]);
		if (!err && ring_count == 0)
			err = try_ring(&rings[0]);
		ring_count += !err;
	}
	if (ring_count == 0) {
		snprintf(geom->why, sizeof(geom->why), "cannot use io_uring: %s%s", strerror(-err),
			 err == -ENOSYS ? " (the kernel does not offer it)" :
			 err == -EPERM ? ". Try kernel.io_uring_disabled=0, or a filter of system "
					 "calls that permits it" :
			 err == -ENOMEM ? ". Try a larger limit of locked memory (ulimit -l)" : "");
		return -EOPNOTSUPP;
	}
	atomic_store(&ring_owner, getpid());
	return 0;
}

static struct ring *take_ring(void)
{
	unsigned first = (unsigned)((uintptr_t)&own_ring >> 12);

	for (unsigned i = 0; i < ring_count; i++) {
		struct ring *r = &rings[(first + i) % ring_count];

		if (!atomic_load_explicit(&r->taken, memory_order_relaxed) &&
		    !atomic_exchange(&r->taken, true))
			return r;
	}
	return NULL;
}

static void release_ring(struct ring *r)
{
	own_ring = NULL;
	atomic_store(&r->taken, false);
}

/* ---- Files ---- */

/* Registers fd in all rings under the number of the file; -1 removes the file. */
static int set_registered_fd(const struct file *f, int fd)
{
	int err = 0;

	for (unsigned i = 0; i < ring_count; i++) {
		if (rings[i].has_files &&
		    io_uring_register_files_update(&rings[i].uring, (unsigned)f->slot, &fd, 1) < 0)
			err = -1;
	}
	return err;
}

/* If no number is free, requests use the descriptor itself. */
static void register_file_locked(struct file *f)
{
	for (int i = 0; i < MAX_FILES && f->slot < 0; i++) {
		if (!file_used[i])
			f->slot = i;
	}
	if (f->slot < 0)
		return;
	file_used[f->slot] = true;
	if (set_registered_fd(f, f->direct_fd) == 0)
		return;
	set_registered_fd(f, -1);
	file_used[f->slot] = false;
	f->slot = -1;
}

static void unregister_file(struct file *f)
{
	if (f->slot < 0 || atomic_load(&ring_owner) != getpid())
		return;
	futex_lock(&rings_lock);
	set_registered_fd(f, -1);
	file_used[f->slot] = false;
	futex_unlock(&rings_lock);
}

/* ---- Requests ---- */

/* Transfers the bytes of a request behind the first `from` without a ring. */
static int transfer_rest(struct file *f, struct ummap_io *io, size_t from)
{
	char *buf = (char *)io->buf + from;

	if (io->op == UMMAP_IO_WRITE)
		return file_write(f, buf, io->len - from, io->off + from);
	return file_read(f, buf, io->len - from, io->off + from);
}

static void queue_request(struct ring *r, struct file *f, struct ummap_io *io)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
	bool registered = r->has_files && f->slot >= 0;
	int fd = registered ? f->slot : f->direct_fd;
	unsigned i = 0;

	while (r->slots[i].io)
		i++;
	r->slots[i] = (struct slot){ io, f };
	if (io->op == UMMAP_IO_WRITE)
		io_uring_prep_write(sqe, fd, io->buf, (unsigned)io->len, io->off);
	else
		io_uring_prep_read(sqe, fd, io->buf, (unsigned)io->len, io->off);
	if (registered)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data64(sqe, i);
	r->in_flight++;
}

/* Requests that the kernel does not accept now (-EAGAIN, -EBUSY, -EINTR) remain in the queue, and
 * uring_reap submits them again. */
static int uring_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct file *f = h;
	struct ring *r = own_ring ? own_ring : take_ring();
	unsigned i, before;

	if (!r)
		return 0;
	own_ring = r;
	before = r->in_flight;
	for (i = 0; i < n && r->in_flight + r->n_done < (unsigned)f->depth; i++) {
		enum file_way way = file_way(f, io[i]->buf, io[i]->len, io[i]->off,
					     io[i]->op == UMMAP_IO_WRITE);

		if (way == FILE_DIRECT) {
			queue_request(r, f, io[i]);
			continue;
		}
		io[i]->res = way == FILE_CACHED ?
			     file_read_cached(f, io[i]->buf, io[i]->len, io[i]->off) :
			     transfer_rest(f, io[i], 0);
		r->done[r->n_done++] = io[i];
	}
	if (r->in_flight > before)
		io_uring_submit(&r->uring);
	if (r->in_flight == 0 && r->n_done == 0)
		release_ring(r);
	return (int)i;
}

/* Whether a result is an error of the store. After another error, the transfer is made without the
 * ring. */
static bool is_store_error(int res)
{
	return res < 0 && res != -EAGAIN && res != -EINTR && res != -EINVAL && res != -ECANCELED &&
	       res != -EOPNOTSUPP;
}

/* Completes a request. If it was short or refused, the rest is transferred without the ring. */
static struct ummap_io *finish_request(struct ring *r, unsigned i, int res)
{
	struct slot s = r->slots[i];

	r->slots[i].io = NULL;
	r->in_flight--;
	if (is_store_error(res))
		s.io->res = file_failed(res);
	else if (res >= 0 && (size_t)res == s.io->len)
		s.io->res = 0;
	else
		s.io->res = transfer_rest(s.file, s.io, res > 0 ? (size_t)res : 0);
	return s.io;
}

static unsigned collect_done(struct ring *r, struct ummap_io **done, unsigned max)
{
	struct io_uring_cqe *cqe;
	unsigned n = 0;

	while (n < max && r->n_done > 0)
		done[n++] = r->done[--r->n_done];
	while (n < max && r->in_flight > 0 && io_uring_peek_cqe(&r->uring, &cqe) == 0) {
		unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&r->uring, cqe);
		done[n++] = finish_request(r, i, res);
	}
	return n;
}

/*
 * A filter of system calls that came after the opening forbids io_uring_enter(2). Removes from the
 * queue the requests that the kernel has not accepted, and transfers them without the ring.
 * Accepted requests complete without a system call.
 */
static unsigned finish_refused(struct ring *r, struct ummap_io **done, unsigned max)
{
	struct io_uring_sq *sq = &r->uring.sq;
	unsigned n = 0;

	while (n < max && io_uring_sq_ready(&r->uring) > 0) {
		const struct io_uring_sqe *sqe = &sq->sqes[(sq->sqe_tail - 1) & sq->ring_mask];

		sq->sqe_head = --sq->sqe_tail;
		__atomic_store_n(sq->ktail, sq->sqe_tail, __ATOMIC_RELEASE);
		done[n++] = finish_request(r, (unsigned)sqe->user_data, -ECANCELED);
	}
	return n;
}

static int uring_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct ring *r = own_ring;
	unsigned n;

	(void)h;
	if (!r)
		return 0;
	if (io_uring_sq_ready(&r->uring))
		io_uring_submit(&r->uring);
	n = collect_done(r, done, max);
	while (n < min && n < max && r->in_flight > 0) {
		unsigned more = min - n < r->in_flight ? min - n : r->in_flight;
		int err = io_uring_submit_and_wait(&r->uring, more);

		if (err == -EPERM || err == -ENOSYS || err == -EACCES)
			n += finish_refused(r, done + n, max - n);
		if (err < 0)
			sched_yield();
		n += collect_done(r, done + n, max - n);
	}
	if (r->in_flight == 0 && r->n_done == 0)
		release_ring(r);
	return (int)n;
}

/* ---- Handles ---- */

static int parse_depth(const struct ummap_uri *uri, int *depth, struct ummap_geom *geom)
{
	static const struct key_type types[] = { URING_KEYS(KEY_TYPE) KEY_TYPES_END };
	uint64_t n = MAX_DEPTH;

	for (unsigned i = 0; i < uri->nkeys; i++) {
		if (strcmp(uri->keys[i].name, "depth") == 0 &&
		    !keys_number(uri->keys[i].value, 1, MAX_DEPTH, &n))
			return keys_refuse_value(geom, "", &uri->keys[i], types);
	}
	*depth = (int)n;
	return 0;
}

/* Opens the path of the URI if fd is negative. */
static int open_handle(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom)
{
	struct file *f;
	int depth = MAX_DEPTH, err = parse_depth(uri, &depth, geom);

	if (err)
		return err;
	futex_lock(&rings_lock);
	err = make_rings_locked(geom);
	futex_unlock(&rings_lock);
	if (!err)
		err = fd < 0 ? file_open(uri, oflags, S_IFBLK, store_check(oflags), &f, geom) :
			       file_open_fd(uri, fd, oflags, S_IFBLK, &f, geom);
	if (err)
		return err;
	*h = f;
	f->depth = depth;
	if (f->direct_fd >= 0) {
		geom->caps |= UMMAP_CAP_ASYNC;
		futex_lock(&rings_lock);
		register_file_locked(f);
		futex_unlock(&rings_lock);
	}
	return 0;
}

static int uring_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_handle(uri, -1, oflags, h, geom);
}

static int uring_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			 struct ummap_geom *geom)
{
	return open_handle(uri, fd, oflags, h, geom);
}

/* If the caller has not reaped all its requests, the kernel may still use their buffers. */
static int uring_close(void *h)
{
	struct ummap_io *done[MAX_DEPTH];

	if (atomic_load(&ring_owner) == getpid()) {
		while (own_ring)
			uring_reap(h, done, MAX_DEPTH, MAX_DEPTH);
	}
	unregister_file(h);
	return file_close(h);
}

const struct ummap_driver ummap_driver_uring = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "uring",
	.keys = URING_KEYS(KEY_NAME),
	.help = "a file or block device by io_uring "
		"(direct=auto|always|never, cached=auto|map|copy, fd=N, depth=1 to 64)",
	.open = uring_open,
	.open_fd = uring_open_fd,
	.close = uring_close,
	.submit = uring_submit,
	.reap = uring_reap,
	FILE_CALLS
};
