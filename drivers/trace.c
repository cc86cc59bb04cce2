/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace - a filter that writes a line of CSV for each request to the next driver, when it is done.
 *
 * Each handle makes a file of its own and overwrites none. Lines gather in a block of memory, which goes to the
 * file when it is full, after a flush, and at close. No request fails because the disk is full: lines that
 * find no room are counted and lost, and room for a last line which says so is set aside in time.
 *
 * The lock is held for putting a line into the block, and for writing that out. It is a futex, and nothing is
 * called that a fault-safe driver may not call, because requests run in signal handlers.
 */
#include "behind.h"

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
#define BLOCK ((size_t)64 << 10)
#define LINE_MAX_LEN 160    /* more than six numbers and a word */
#define LAST_LINE 80
#define IN_FLIGHT 256       /* asynchronous requests at a time */
#define SUBMIT_MAX 64       /* of one call */

/* A request on its way. If it is asynchronous, the next driver has `io`, which leads back to here. */
struct request {
	struct ummap_io io;        /* first: its address is ours */
	struct ummap_io *theirs;   /* what io is a copy of */
	const char *name;          /* of the operation */
	uint64_t start;            /* ns */
	long thread;
};

struct trace {
	struct behind next;
	_Atomic uint64_t shift;    /* what `map` has put in place: offset in the store less address */
	uint64_t opened;           /* ns */
	atomic_bool busy[IN_FLIGHT];
	struct request requests[IN_FLIGHT];
	_Atomic uint32_t lock;     /* of all below; 0 free, 1 taken, 2 taken and somebody may wait */
	int fd;
	bool made;                 /* the file is ours alone */
	uint64_t written;          /* bytes of it */
	uint64_t lost;             /* lines ... */
	int why;                   /* ... and their last errno */
	size_t used;               /* of the block */
	char block[BLOCK];
};

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* --- from the block to the file --- */

/* All of the block or none; never without room for the last line behind it. The lock is ours. */
static void write_out(struct trace *t)
{
	size_t done = 0;
	struct rlimit most;

	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && t->written + t->used + LAST_LINE > most.rlim_cur) {
		t->why = EFBIG;
		return;
	}
	if (syscall(SYS_fallocate, t->fd, FALLOC_FL_KEEP_SIZE, t->written, t->used + LAST_LINE) < 0 &&
	    (errno == ENOSPC || errno == EDQUOT)) {
		t->why = errno;
		return;
	}
	while (done < t->used) {
		long n = syscall(SYS_write, t->fd, t->block + done, t->used - done);

		if (n > 0) {
			done += (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			t->why = n == 0 ? EIO : errno;
			syscall(SYS_lseek, t->fd, t->written, SEEK_SET);
			return;
		}
	}
	t->written += done;
	t->used = 0;
}

/* What is still in the block is lost; the last line says how much was. Returns why. */
static int say_lost(struct trace *t)
{
	char text[LAST_LINE];
	int len;

	for (size_t i = 0; i < t->used; i++)
		t->lost += t->block[i] == '\n';
	t->lost -= t->written == 0; /* the header */
	len = snprintf(text, sizeof(text), "# %llu lines lost: %s\n", (unsigned long long)t->lost, strerror(t->why));
	if (write(t->fd, text, (size_t)len) == len)
		t->written += (size_t)len;
	if (t->made && ftruncate(t->fd, (off_t)t->written) < 0)
		t->why = errno;
	return -t->why;
}

/* --- lines --- */

static char *put_number(char *out, uint64_t value, char behind)
{
	char digits[20];
	int n = 0;

	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	while (n > 0)
		*out++ = digits[--n];
	*out++ = behind;
	return out;
}

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
	if (t->used > BLOCK - LINE_MAX_LEN)
		write_out(t);
	if (t->used > BLOCK - LINE_MAX_LEN)
		t->lost++;
	else
		t->used = (size_t)(put_line(t->block + t->used, t, r, took) - t->block);
	futex_unlock(&t->lock);
}

static struct request begin(const char *name, uint64_t off, uint64_t len)
{
	return (struct request){ .io = { .off = off, .len = len }, .name = name, .start = clock_ns(),
				 .thread = syscall(SYS_gettid) };
}

static int finish(struct trace *t, struct request *r, int res)
{
	r->io.res = res;
	add_line(t, r);
	return res;
}

/* --- calls --- */

static int transfer(struct trace *t, uint8_t op, const struct iovec *iov, int n, uint64_t off)
{
	bool writing = op == UMMAP_IO_WRITE;
	struct request r = begin(writing ? "write" : "read", off, 0);

	for (int i = 0; i < n; i++)
		r.io.len += iov[i].iov_len;
	return finish(t, &r, writing ? behind_writev(&t->next, iov, n, off) :
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
	return transfer(h, UMMAP_IO_WRITE, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

static int trace_flush(void *h, uint64_t off, uint64_t len)
{
	struct trace *t = h;
	struct request r = begin("flush", off, len);

	finish(t, &r, behind_flush(&t->next, off, len));
	futex_lock(&t->lock);
	write_out(t);
	futex_unlock(&t->lock);
	return r.io.res;
}

static int trace_resize(void *h, uint64_t size)
{
	struct trace *t = h;
	struct request r = begin("resize", 0, size);

	return t->next.driver.resize ? finish(t, &r, behind_resize(&t->next, size)) : -EOPNOTSUPP;
}

static int trace_size(void *h, uint64_t *size)
{
	struct trace *t = h;
	struct request r = begin("size", 0, 0);
	int err = behind_size(&t->next, size);

	r.io.len = err ? 0 : *size;
	return finish(t, &r, err);
}

/* No request of bytes, and so no line. */
static int trace_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	struct trace *t = h;

	return behind_lock(&t->next, off, len, how, why);
}

/* What is asked for is no request. */
static int trace_data(void *h, uint64_t off, uint64_t *begin, uint64_t *end)
{
	struct trace *t = h;

	return t->next.driver.data ? t->next.driver.data(t->next.h, off, begin, end) : -EOPNOTSUPP;
}

static int trace_commits(void *h, uint64_t *oldest, uint64_t *newest)
{
	struct trace *t = h;

	return behind_commits(&t->next, oldest, newest);
}

static int trace_push(void *h)
{
	struct trace *t = h;
	struct request r = begin("push", 0, 0);

	return t->next.driver.push ? finish(t, &r, behind_push(&t->next)) : -EOPNOTSUPP;
}

static void trace_set_notice(void *h, ummap_notice *notice, void *arg)
{
	struct trace *t = h;

	behind_set_notice(&t->next, notice, arg);
}

static int trace_map(void *h, void *addr, size_t len, uint64_t off, int prot)
{
	struct trace *t = h;
	struct request r = begin("map", off, len);

	if (!t->next.driver.map)
		return -EOPNOTSUPP;
	t->shift = off - (uintptr_t)addr;
	return finish(t, &r, t->next.driver.map(t->next.h, addr, len, off, prot));
}

static int trace_persist(void *h, void *addr, size_t len)
{
	struct trace *t = h;
	struct request r = begin("persist", (uintptr_t)addr + t->shift, len);

	if (!t->next.driver.persist)
		return trace_flush(h, r.io.off, len);
	return finish(t, &r, t->next.driver.persist(t->next.h, addr, len));
}

/* --- asynchronous calls --- */

/* NULL: as many as there is room for are on their way. */
static struct request *take_request(struct trace *t)
{
	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		if (!t->busy[i] && !atomic_exchange(&t->busy[i], true))
			return &t->requests[i];
	}
	return NULL;
}

static int trace_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct trace *t = h;
	struct ummap_io *copies[SUBMIT_MAX];
	struct request *r;
	unsigned ready = 0;
	int sent = 0;

	for (; ready < n && ready < SUBMIT_MAX && (r = take_request(t)); ready++) {
		*r = begin(io[ready]->op == UMMAP_IO_WRITE ? "write" : "read", 0, 0);
		r->io = *io[ready];
		r->theirs = io[ready];
		copies[ready] = &r->io;
	}
	if (ready > 0)
		sent = t->next.driver.submit(t->next.h, copies, ready);
	for (unsigned i = sent > 0 ? (unsigned)sent : 0; i < ready; i++) {
		r = (struct request *)copies[i];
		if (sent < 0)
			finish(t, r, sent);
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
		done[i] = r->theirs;
		done[i]->res = r->io.res;
		t->busy[r - t->requests] = false;
	}
	return n;
}

static int trace_hand_over(void *h, struct ummap_handover *to)
{
	struct trace *t = h;

	return behind_hand_over(&t->next, to);
}

/* --- opening and closing --- */

/* PATH, or PATH.2 and so on where that exists. What is no file, such as /dev/stderr, is written to as it is. */
static int open_file(const char *path, bool *made)
{
	char name[PATH_MAX + 16]; /* what is cut off here is too long anyway */
	struct stat st;

	snprintf(name, sizeof(name), "%s", path);
	for (unsigned i = 2;; i++) {
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

		*made = fd >= 0;
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
	write_out(t);
}

/* path is that of the trace; fd: -1 for what uri names. */
static int open_both(struct trace *t, const struct ummap_uri *uri, const char *path, int fd, int oflags,
		     struct ummap_geom *geom)
{
	int err = behind_open(&t->next, uri, fd, oflags, geom);

	if (err)
		return err;
	t->fd = open_file(path, &t->made);
	if (t->fd >= 0)
		return 0;
	err = keys_refuse(geom, EINVAL, "cannot write the trace to '%.140s' (trace.file): %s", path,
			  strerror(errno));
	behind_close(&t->next);
	return err;
}

static int open_either(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	const char *path = uri->nkeys ? uri->keys[0].value : ""; /* there is no other key */
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
	return open_either(uri, -1, oflags, h, geom);
}

static int trace_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	return open_either(uri, fd, oflags, h, geom);
}

static int trace_close(void *h)
{
	struct trace *t = h;
	int err = behind_close(&t->next), lost = 0;

	/* What a forked child has in the block are its parent's lines. */
	if (!behind_inherited(&t->next)) {
		write_out(t);
		if (t->used > 0 || t->lost > 0)
			lost = say_lost(t);
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
	.help = "a filter: a line of CSV for each request, in trace.file=PATH",
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
	.lock = trace_lock,
	.commits = trace_commits,
	.push = trace_push,
	.set_notice = trace_set_notice,
	.data = trace_data,
	.hand_over = trace_hand_over,
};
