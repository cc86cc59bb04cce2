/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uring - regular files and block devices through io_uring: many requests on their way at a time, by few system
 * calls. What goes past the page cache goes through a ring; ends of files, odd alignments and what the page
 * cache holds already are small or quick, and go as the posix driver does it (file.c), while submitting.
 *
 * The process has a few rings for all handles. A thread that submits takes one, and has it to itself until
 * it has reaped all that it submitted. So no ring has a lock, and no request outlives the call that made it:
 * its completion would interrupt whatever system call of the application the thread is in by then.
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

#define RINGS 16
#define DEPTH_MAX 64
#define FILES 256              /* places for registered files; handles beyond go without */

extern const struct ummap_driver ummap_driver_uring;

/* A request in the ring. */
struct slot {
	struct ummap_io *io;
	struct file *file;
};

struct ring {
	struct io_uring uring;
	atomic_bool taken;
	bool files;                          /* registered files can be used */
	unsigned flying, quick;
	struct slot slots[DEPTH_MAX];        /* of those flying; free if io is NULL */
	struct ummap_io *done[DEPTH_MAX];    /* `quick` of them were done while submitting */
};

static struct ring rings[RINGS];
static unsigned ring_count;
static _Atomic pid_t ring_owner;             /* a forked child has to make rings of its own */
static _Atomic uint32_t opening;             /* the lock of what follows */
static bool file_used[FILES];
static _Thread_local struct ring *mine __attribute__((tls_model("initial-exec")));

/* The child must find the rings consistent, to leave them to its parent. */
__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_RINGS, &opening, NULL, NULL);
}

/* ---- Rings ---- */

static int make_ring(struct ring *r)
{
	struct io_uring_params params = { .flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL };
	int err = io_uring_queue_init_params(DEPTH_MAX, &r->uring, &params);

	if (err == -EINVAL) {
		memset(&params, 0, sizeof(params));
		err = io_uring_queue_init_params(DEPTH_MAX, &r->uring, &params);
	}
	if (err)
		return err;
	r->uring.ring_fd = r->uring.enter_ring_fd = file_away(r->uring.ring_fd);
	r->files = io_uring_register_files_sparse(&r->uring, FILES) == 0;
	r->flying = r->quick = 0;
	memset(r->slots, 0, sizeof(r->slots));
	atomic_store(&r->taken, false);
	return 0;
}

/* Making a ring and using it are two system calls, and a filter may forbid either. */
static int try_ring(struct ring *r)
{
	struct io_uring_cqe *cqe;
	int got;

	io_uring_prep_nop(io_uring_get_sqe(&r->uring));
	do
		got = io_uring_submit_and_wait(&r->uring, 1);
	while (got == -EINTR || got == -EAGAIN);
	if (got >= 0 && io_uring_peek_cqe(&r->uring, &cqe) == 0)
		io_uring_cqe_seen(&r->uring, cqe);
	else
		io_uring_queue_exit(&r->uring);
	return got < 0 ? got : 0;
}

/* Under the lock. One ring is enough to go on; threads that find none free work without. */
static int make_rings(struct ummap_geom *geom)
{
	int err = 0;

	if (atomic_load(&ring_owner) == getpid())
		return 0;
	/* Those of a parent stay its own. */
	while (ring_count > 0)
		io_uring_queue_exit(&rings[--ring_count].uring);
	mine = NULL;
	memset(file_used, 0, sizeof(file_used));
	while (ring_count < RINGS && !err) {
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
	unsigned first = (unsigned)((uintptr_t)&mine >> 12);

	for (unsigned i = 0; i < ring_count; i++) {
		struct ring *r = &rings[(first + i) % ring_count];

		if (!atomic_load_explicit(&r->taken, memory_order_relaxed) && !atomic_exchange(&r->taken, true))
			return r;
	}
	return NULL;
}

static void leave_ring(struct ring *r)
{
	mine = NULL;
	atomic_store(&r->taken, false);
}

/* ---- Files ---- */

static int put_file(const struct file *f, int fd)
{
	int err = 0;

	for (unsigned i = 0; i < ring_count; i++) {
		if (rings[i].files && io_uring_register_files_update(&rings[i].uring, (unsigned)f->slot, &fd, 1) < 0)
			err = -1;
	}
	return err;
}

/* Under the lock. Without a place the descriptor itself is used. */
static void register_file(struct file *f)
{
	for (int i = 0; i < FILES && f->slot < 0; i++) {
		if (!file_used[i])
			f->slot = i;
	}
	if (f->slot < 0)
		return;
	file_used[f->slot] = true;
	if (put_file(f, f->direct_fd) == 0)
		return;
	put_file(f, -1);
	file_used[f->slot] = false;
	f->slot = -1;
}

static void unregister_file(struct file *f)
{
	if (f->slot < 0 || atomic_load(&ring_owner) != getpid())
		return;
	futex_lock(&opening);
	put_file(f, -1);
	file_used[f->slot] = false;
	futex_unlock(&opening);
}

/* ---- Requests ---- */

static int do_quickly(struct file *f, struct ummap_io *io, size_t from)
{
	char *buf = (char *)io->buf + from;

	if (io->op == UMMAP_IO_WRITE)
		return file_write(f, buf, io->len - from, io->off + from);
	return file_read(f, buf, io->len - from, io->off + from);
}

static void prepare(struct ring *r, struct file *f, struct ummap_io *io)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
	bool registered = r->files && f->slot >= 0;
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
	r->flying++;
}

/* What the kernel does not take now (-EAGAIN, -EBUSY, -EINTR) it is given again when reaping. */
static int uring_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct file *f = h;
	struct ring *r = mine ? mine : take_ring();
	unsigned i, before;

	if (!r)
		return 0;
	mine = r;
	before = r->flying;
	for (i = 0; i < n && r->flying + r->quick < (unsigned)f->depth; i++) {
		enum file_way way = file_way(f, io[i]->buf, io[i]->len, io[i]->off, io[i]->op == UMMAP_IO_WRITE);

		if (way == FILE_DIRECT) {
			prepare(r, f, io[i]);
			continue;
		}
		io[i]->res = way == FILE_CACHED ? file_read_cached(f, io[i]->buf, io[i]->len, io[i]->off) :
			     do_quickly(f, io[i], 0);
		r->done[r->quick++] = io[i];
	}
	if (r->flying > before)
		io_uring_submit(&r->uring);
	if (r->flying == 0 && r->quick == 0)
		leave_ring(r);
	return (int)i;
}

static bool is_final(int res)
{
	return res < 0 && res != -EAGAIN && res != -EINTR && res != -EINVAL && res != -ECANCELED &&
	       res != -EOPNOTSUPP;
}

/* What came back short, or was refused in this form, is done another way. */
static struct ummap_io *finish(struct ring *r, unsigned i, int res)
{
	struct slot s = r->slots[i];

	r->slots[i].io = NULL;
	r->flying--;
	if (is_final(res))
		s.io->res = file_failed(res);
	else if (res >= 0 && (size_t)res == s.io->len)
		s.io->res = 0;
	else
		s.io->res = do_quickly(s.file, s.io, res > 0 ? (size_t)res : 0);
	return s.io;
}

static unsigned collect(struct ring *r, struct ummap_io **done, unsigned max)
{
	struct io_uring_cqe *cqe;
	unsigned n = 0;

	while (n < max && r->quick > 0)
		done[n++] = r->done[--r->quick];
	while (n < max && r->flying > 0 && io_uring_peek_cqe(&r->uring, &cqe) == 0) {
		unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&r->uring, cqe);
		done[n++] = finish(r, i, res);
	}
	return n;
}

/* A filter of system calls came after the opening: what the kernel has not taken is taken back, and done another way. What
 * it has ends without being asked. */
static unsigned do_refused(struct ring *r, struct ummap_io **done, unsigned max)
{
	struct io_uring_sq *sq = &r->uring.sq;
	unsigned n = 0;

	while (n < max && io_uring_sq_ready(&r->uring) > 0) {
		const struct io_uring_sqe *sqe = &sq->sqes[(sq->sqe_tail - 1) & sq->ring_mask];

		sq->sqe_head = --sq->sqe_tail;
		__atomic_store_n(sq->ktail, sq->sqe_tail, __ATOMIC_RELEASE);
		done[n++] = finish(r, (unsigned)sqe->user_data, -ECANCELED);
	}
	return n;
}

static int uring_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct ring *r = mine;
	unsigned n;

	(void)h;
	if (!r)
		return 0;
	if (io_uring_sq_ready(&r->uring))
		io_uring_submit(&r->uring);
	n = collect(r, done, max);
	while (n < min && n < max && r->flying > 0) {
		unsigned more = min - n < r->flying ? min - n : r->flying;
		int got = io_uring_submit_and_wait(&r->uring, more);

		if (got == -EPERM || got == -ENOSYS || got == -EACCES)
			n += do_refused(r, done + n, max - n);
		if (got < 0)
			sched_yield();
		n += collect(r, done + n, max - n);
	}
	if (r->flying == 0 && r->quick == 0)
		leave_ring(r);
	return (int)n;
}

/* ---- Handles ---- */

static int parse_depth(const struct ummap_uri *uri, int *depth, struct ummap_geom *geom)
{
	static const struct key_type types[] = { URING_KEYS(KEY_TYPE) KEY_TYPES_END };
	uint64_t n = DEPTH_MAX;

	for (unsigned i = 0; i < uri->nkeys; i++) {
		if (strcmp(uri->keys[i].name, "depth") == 0 && !keys_number(uri->keys[i].value, 1, DEPTH_MAX, &n))
			return keys_refuse_value(geom, "", &uri->keys[i], types);
	}
	*depth = (int)n;
	return 0;
}

/* fd < 0: by path. */
static int open_handle(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	struct file *f;
	int depth = DEPTH_MAX, err = parse_depth(uri, &depth, geom);

	if (err)
		return err;
	futex_lock(&opening);
	err = make_rings(geom);
	futex_unlock(&opening);
	if (!err)
		err = fd < 0 ? file_open(uri, oflags, S_IFBLK, store_check(oflags), &f, geom) :
			       file_open_fd(uri, fd, oflags, S_IFBLK, &f, geom);
	if (err)
		return err;
	*h = f;
	f->depth = depth;
	if (f->direct_fd >= 0) {
		geom->caps |= UMMAP_CAP_ASYNC;
		futex_lock(&opening);
		register_file(f);
		futex_unlock(&opening);
	}
	return 0;
}

static int uring_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_handle(uri, -1, oflags, h, geom);
}

static int uring_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	return open_handle(uri, fd, oflags, h, geom);
}

/* A caller that did not reap all it submitted still has a ring, and the kernel its buffers. */
static int uring_close(void *h)
{
	struct ummap_io *done[DEPTH_MAX];

	if (atomic_load(&ring_owner) == getpid()) {
		while (mine)
			uring_reap(h, done, DEPTH_MAX, DEPTH_MAX);
	}
	unregister_file(h);
	return file_close(h);
}

const struct ummap_driver ummap_driver_uring = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "uring",
	.keys = URING_KEYS(KEY_NAME),
	.help = "a file or block device by io_uring (direct=auto|always|never, cached=copy|map, fd=N, depth=1 to 64)",
	.open = uring_open,
	.open_fd = uring_open_fd,
	.close = uring_close,
	.submit = uring_submit,
	.reap = uring_reap,
	FILE_CALLS
};
