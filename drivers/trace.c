/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter trace: writes a line of CSV for each request to the next driver, when the request
 * ends.
 *
 * Each handle creates a file, and never overwrites one. Lines are collected in a block of memory,
 * which is written to the file when it is full, after a flush, and at close. A full disk makes no
 * request fail: lines without room are counted and lost. Room for a last line that reports them is
 * always reserved.
 *
 * The lock is held while a line is added to the block and while the block is written. It is a
 * futex, and requests call only functions that a fault-safe driver may call, because they run in
 * signal handlers.
 */
#include "transparent.h"

#include "common/futex.h"
#include "keys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern const struct ummap_driver ummap_driver_trace;

#define HEADER "start_ns,operation,offset,length,duration_ns,result,thread\n"
#define BLOCK_BYTES ((size_t)64 << 10)
#define MAX_LINE_BYTES 160      /* more than six numbers and a word */
#define MAX_LAST_LINE_BYTES 80
#define MAX_IN_FLIGHT 256       /* asynchronous requests */
#define MAX_SUBMIT 64           /* requests of one call */

/* A request in flight. The next driver gets the address of `io`, which is also the structure's. */
struct request {
	struct ummap_io io;        /* request to the next driver; the first field */
	struct ummap_io *caller_io; /* caller's request, of which io is a copy */
	const char *name;          /* name of the operation */
	uint64_t start;            /* time of the beginning in ns */
	long thread;               /* thread that made the request */
};

struct trace {
	struct behind next;        /* next driver; the first field */
	_Atomic uint64_t shift;    /* mapping in place: offset in the store minus address */
	uint64_t opened;           /* time of the opening in ns */
	atomic_bool busy[MAX_IN_FLIGHT]; /* whether an element of `requests` is in use */
	struct request requests[MAX_IN_FLIGHT]; /* asynchronous requests in flight */
	_Atomic uint32_t lock;     /* lock of the fields below */
	int fd;                    /* descriptor of the trace */
	bool created;              /* whether the handle has created the file */
	uint64_t written;          /* bytes in the file */
	uint64_t lost;             /* number of lost lines */
	int lost_errno;            /* last error that lost lines */
	size_t used;               /* bytes in the block */
	char block[BLOCK_BYTES];   /* lines to be written */
};

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- The block and the file ---- */

/* Writes the whole block or nothing, and only if there is room for the last line behind it. */
static void write_block_locked(struct trace *t)
{
	size_t done = 0, room = t->used + MAX_LAST_LINE_BYTES;
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && t->written + room > limit.rlim_cur) {
		t->lost_errno = EFBIG;
		return;
	}
	if (syscall(SYS_fallocate, t->fd, FALLOC_FL_KEEP_SIZE, t->written, room) < 0 &&
	    (errno == ENOSPC || errno == EDQUOT)) {
		t->lost_errno = errno;
		return;
	}
	while (done < t->used) {
		long n = syscall(SYS_write, t->fd, t->block + done, t->used - done);

		if (n > 0) {
			done += (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			t->lost_errno = n == 0 ? EIO : errno;
			syscall(SYS_lseek, t->fd, t->written, SEEK_SET);
			return;
		}
	}
	t->written += done;
	t->used = 0;
}

/* Drops the lines in the block, and reports the number of lost lines in a last line. Returns the
 * error that lost them. */
static int write_last_line(struct trace *t)
{
	char text[MAX_LAST_LINE_BYTES];
	int len;

	for (size_t i = 0; i < t->used; i++)
		t->lost += t->block[i] == '\n';
	t->lost -= t->written == 0; /* the header is no line */
	len = snprintf(text, sizeof(text), "# %llu lines lost: %s\n", (unsigned long long)t->lost,
		       strerror(t->lost_errno));
	if (write(t->fd, text, (size_t)len) == len)
		t->written += (size_t)len;
	if (t->created && ftruncate(t->fd, (off_t)t->written) < 0)
		t->lost_errno = errno;
	return -t->lost_errno;
}

/* ---- Lines ---- */

static char *put_line(char *out, const struct trace *t, const struct request *r, uint64_t took)
{
	out = put_number(out, r->start - t->opened, ',');
	out = stpcpy(out, r->name);
	*out++ = ',';
	out = put_number(out, r->io.off, ',');
	out = put_number(out, r->io.len, ',');
	out = put_number(out, took, ',');
	if (r->io.res < 0)
		*out++ = '-';
	out = put_number(out, (uint64_t)llabs(r->io.res), ',');
	return put_number(out, (uint64_t)r->thread, '\n');
}

static void add_line(struct trace *t, const struct request *r)
{
	uint64_t took = clock_ns() - r->start;

	futex_lock(&t->lock);
	if (t->used > BLOCK_BYTES - MAX_LINE_BYTES)
		write_block_locked(t);
	if (t->used > BLOCK_BYTES - MAX_LINE_BYTES)
		t->lost++;
	else
		t->used = (size_t)(put_line(t->block + t->used, t, r, took) - t->block);
	futex_unlock(&t->lock);
}

static struct request begin_request(const char *name, uint64_t off, uint64_t len)
{
	return (struct request){ .io = { .off = off, .len = len }, .name = name,
				 .start = clock_ns(), .thread = syscall(SYS_gettid) };
}

static int finish_request(struct trace *t, struct request *r, int res)
{
	r->io.res = res;
	add_line(t, r);
	return res;
}

/* ---- Calls ---- */

static int transfer(struct trace *t, uint8_t op, const struct iovec *iov, int n, uint64_t off)
{
	bool writing = op == UMMAP_IO_WRITE;
	struct request r = begin_request(writing ? "write" : "read", off, 0);

	for (int i = 0; i < n; i++)
		r.io.len += iov[i].iov_len;
	return finish_request(t, &r, writing ? behind_writev(&t->next, iov, n, off) :
					       behind_readv(&t->next, iov, n, off));
}

static int trace_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, UMMAP_IO_READ, iov, n, off);
}

static int trace_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, UMMAP_IO_WRITE, iov, n, off);
}

static int trace_read(void *h, void *buf, size_t len, uint64_t off)
{
	return transfer(h, UMMAP_IO_READ, &(struct iovec){ buf, len }, 1, off);
}

static int trace_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return transfer(h, UMMAP_IO_WRITE, &iov, 1, off);
}

static int trace_flush(void *h, uint64_t off, uint64_t len)
{
	struct trace *t = h;
	struct request r = begin_request("flush", off, len);

	finish_request(t, &r, behind_flush(&t->next, off, len));
	futex_lock(&t->lock);
	write_block_locked(t);
	futex_unlock(&t->lock);
	return r.io.res;
}

static int trace_resize(void *h, uint64_t size)
{
	struct trace *t = h;
	struct request r = begin_request("resize", 0, size);

	if (!t->next.driver.resize)
		return -EOPNOTSUPP;
	return finish_request(t, &r, behind_resize(&t->next, size));
}

static int trace_size(void *h, uint64_t *size)
{
	struct trace *t = h;
	struct request r = begin_request("size", 0, 0);
	int err = behind_size(&t->next, size);

	r.io.len = err ? 0 : *size;
	return finish_request(t, &r, err);
}

/* The search for data is no request, so it has no line. */
static int trace_data(void *h, uint64_t off, uint64_t *begin, uint64_t *end)
{
	struct trace *t = h;

	return t->next.driver.data ? t->next.driver.data(t->next.h, off, begin, end) : -EOPNOTSUPP;
}

static int trace_push(void *h)
{
	struct trace *t = h;
	struct request r = begin_request("push", 0, 0);

	return t->next.driver.push ? finish_request(t, &r, behind_push(&t->next)) : -EOPNOTSUPP;
}

static int trace_map(void *h, void *addr, size_t len, uint64_t off, int prot)
{
	struct trace *t = h;
	struct request r = begin_request("map", off, len);

	if (!t->next.driver.map)
		return -EOPNOTSUPP;
	t->shift = off - (uintptr_t)addr;
	return finish_request(t, &r, t->next.driver.map(t->next.h, addr, len, off, prot));
}

static int trace_persist(void *h, void *addr, size_t len)
{
	struct trace *t = h;
	struct request r = begin_request("persist", (uintptr_t)addr + t->shift, len);

	if (!t->next.driver.persist)
		return trace_flush(h, r.io.off, len);
	return finish_request(t, &r, t->next.driver.persist(t->next.h, addr, len));
}

/* ---- Asynchronous calls ---- */

/* A free request; NULL: MAX_IN_FLIGHT requests are in flight. */
static struct request *take_request(struct trace *t)
{
	for (unsigned i = 0; i < MAX_IN_FLIGHT; i++) {
		if (!t->busy[i] && !atomic_exchange(&t->busy[i], true))
			return &t->requests[i];
	}
	return NULL;
}

static int trace_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct trace *t = h;
	struct ummap_io *copies[MAX_SUBMIT];
	struct request *r;
	unsigned ready = 0;
	int sent = 0;

	for (; ready < n && ready < MAX_SUBMIT && (r = take_request(t)); ready++) {
		*r = begin_request(io[ready]->op == UMMAP_IO_WRITE ? "write" : "read", 0, 0);
		r->io = *io[ready];
		r->caller_io = io[ready];
		copies[ready] = &r->io;
	}
	if (ready > 0)
		sent = t->next.driver.submit(t->next.h, copies, ready);
	for (unsigned i = sent > 0 ? (unsigned)sent : 0; i < ready; i++) {
		r = (struct request *)copies[i];
		if (sent < 0)
			finish_request(t, r, sent);
		t->busy[r - t->requests] = false;
	}
	return sent;
}

static int trace_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct trace *t = h;
	int n = behind_reap(&t->next, done, max, min);

	for (int i = 0; i < n; i++) {
		struct request *r = (struct request *)done[i];

		add_line(t, r);
		done[i] = r->caller_io;
		done[i]->res = r->io.res;
		t->busy[r - t->requests] = false;
	}
	return n;
}

/* ---- Opening and closing ---- */

/* Creates PATH or, if it exists, PATH.2 and so on. An existing file that is not regular, for
 * example /dev/stderr, is opened. */
static int create_trace(const char *path, bool *created)
{
	char name[PATH_MAX + 16]; /* a path that does not fit is refused by open(2) */
	struct stat st;

	snprintf(name, sizeof(name), "%s", path);
	for (unsigned i = 2;; i++) {
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

		*created = fd >= 0;
		if (fd >= 0 || errno != EEXIST)
			return fd;
		if (lstat(name, &st) == 0 && !S_ISREG(st.st_mode))
			return open(name, O_WRONLY | O_APPEND | O_CLOEXEC);
		snprintf(name, sizeof(name), "%s.%u", path, i);
	}
}

static void begin_trace(struct trace *t, struct ummap_geom *geom)
{
	geom->caps |= t->next.caps & UMMAP_CAP_ASYNC;
	t->opened = clock_ns();
	t->used = (size_t)(stpcpy(t->block, HEADER) - t->block);
	write_block_locked(t);
}

/* Opens the next driver and the trace. If fd is -1, the next driver opens the path of the URI. */
static int open_both(struct trace *t, const struct ummap_uri *uri, const char *trace_path, int fd,
		     int oflags, struct ummap_geom *geom)
{
	int err = behind_open(&t->next, uri, fd, oflags, geom);

	if (err)
		return err;
	t->fd = create_trace(trace_path, &t->created);
	if (t->fd >= 0)
		return 0;
	err = keys_refuse(geom, EINVAL, "cannot write the trace to '%.140s' (trace.file): %s",
			  trace_path, strerror(errno));
	behind_close(&t->next);
	return err;
}

static int open_handle(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom)
{
	const char *path = uri->nkeys ? uri->keys[0].value : ""; /* the only key */
	struct trace *t;
	int err;

	if (!uri->next)
		return keys_refuse(geom, EINVAL, "cannot use the filter trace alone. Try "
				   "trace+driver:path");
	if (!*path)
		return keys_refuse(geom, EINVAL, "cannot use the filter trace without a file. Try "
				   "the key trace.file=PATH");
	if (getauxval(AT_SECURE))
		return keys_refuse(geom, EPERM, "cannot use trace.file in a program with more "
				   "rights than its user, because it names a file to write");
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	err = open_both(t, uri, path, fd, oflags, geom);
	if (err) {
		free(t);
		return err;
	}
	begin_trace(t, geom);
	*h = t;
	return 0;
}

static int trace_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_handle(uri, -1, oflags, h, geom);
}

static int trace_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			 struct ummap_geom *geom)
{
	return open_handle(uri, fd, oflags, h, geom);
}

static int trace_close(void *h)
{
	struct trace *t = h;
	int err = behind_close(&t->next), lost = 0;

	/* The lines in the block of a forked child are its parent's. */
	if (!behind_inherited(&t->next)) {
		write_block_locked(t);
		if (t->used > 0 || t->lost > 0)
			lost = write_last_line(t);
	}
	close(t->fd);
	free(t);
	return err ? err : lost;
}

const struct ummap_driver ummap_driver_trace = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "trace",
	.filter = 1,
	.keys = TRACE_KEYS(KEY_NAME),
	.help = "a filter that writes a line of CSV for each request to trace.file=PATH",
	.open = trace_open,
	.open_fd = trace_open_fd,
	.close = trace_close,
	.read = trace_read,
	.write = trace_write,
	.flush = trace_flush,
	.resize = trace_resize,
	.submit = trace_submit,
	.reap = trace_reap,
	.map = trace_map,
	.persist = trace_persist,
	.readv = trace_readv,
	.writev = trace_writev,
	.size = trace_size,
	.push = trace_push,
	.data = trace_data,
	PASSED_CALLS
};
