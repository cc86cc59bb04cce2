/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests. Serializes calls of a driver that cannot work in parallel, keeps drivers that are not fault-safe off the
 * faulting thread, merges neighbours into one request, vectored or longer, and runs asynchronous drivers by submit and
 * reap; with a synchronous driver, submitting a request completes it. Locks: `turn` of a store, held across one call of
 * a driver that has no PARALLEL, or from submit to reap.
 */
#include "io/io.h"

#include "io/store.h"
#include "base/sys.h"
#include "base/worker.h"

#define PIECES_MAX 32 /* of one vectored request */
/* Bytes of one that was several: short enough for some of them to be on their way at a time. */
#define JOINED_MAX ((size_t)2 << 20)

/* One call of a driver, packed so that a worker can make it. */
struct call {
	struct store *store;
	enum { CALL_ONE, CALL_VECTOR, CALL_ASYNC, CALL_JOINED, CALL_FLUSH, CALL_PUSH, CALL_PERSIST } kind;
	struct ummap_io *io;          /* CALL_PERSIST: where it is mapped */
	unsigned n;
	unsigned failed;              /* that were several, and have failed ... */
	unsigned again;               /* ... so that so many were made once more */
	int err;
};

static int run_one(struct store *s, struct ummap_io *io)
{
	if (io->op == UMMAP_IO_READ)
		io->res = s->driver.read(s->handle, io->buf, io->len, io->off);
	else
		io->res = s->driver.write(s->handle, io->buf, io->len, io->off);
	return io->res;
}

/* What has failed together with others need not fail by itself. */
static void run_again(struct call *c, struct ummap_io *io)
{
	run_one(c->store, io);
	c->again++;
}

static int run_vector(struct call *c)
{
	struct store *s = c->store;
	struct iovec iov[PIECES_MAX];
	int res;

	for (unsigned i = 0; i < c->n; i++)
		iov[i] = (struct iovec){ c->io[i].buf, c->io[i].len };
	if (c->io->op == UMMAP_IO_READ)
		res = s->driver.readv(s->handle, iov, (int)c->n, c->io->off);
	else
		res = s->driver.writev(s->handle, iov, (int)c->n, c->io->off);
	c->failed += res != 0;
	for (unsigned i = 0; i < c->n; i++) {
		c->io[i].res = 0;
		if (res)
			run_again(c, &c->io[i]);
	}
	return 0;
}

/* What this thread reaps, it has submitted: every request reaped here is one of these. */
static int run_async(struct call *c)
{
	struct store *s = c->store;
	struct ummap_io *list[PIECES_MAX], *done[PIECES_MAX];
	unsigned n = c->n, sent = 0, reaped = 0;

	for (unsigned i = 0; i < n; i++)
		list[i] = &c->io[i];
	while (reaped < n) {
		int got = sent < n ? s->driver.submit(s->handle, list + sent, n - sent) : 0;

		if (got < 0) {
			/* Those never sent fail; those on their way must still be waited for. */
			for (unsigned i = sent; i < n; i++)
				c->io[i].res = got;
			n = sent;
			continue;
		}
		sent += (unsigned)got;
		if (sent == reaped) {
			/* The driver takes no more, and has none of ours: this one goes by itself. */
			run_one(s, list[sent]);
			sent++;
			reaped++;
			continue;
		}
		/* Nobody looks at one before all are there. */
		got = s->driver.reap(s->handle, done, PIECES_MAX, sent - reaped);
		if (got < 0)
			return got;
		reaped += (unsigned)got;
	}
	return 0;
}

/* Requests that touch, in the store and in memory, become one, unless it gets too long. Returns how many there are. */
static unsigned join(const struct ummap_io *io, unsigned n, struct ummap_io *joined)
{
	struct ummap_io *last = joined;

	*last = io[0];
	for (unsigned i = 1; i < n; i++) {
		bool touches = (char *)last->buf + last->len == io[i].buf && last->off + last->len == io[i].off;

		if (touches && last->len + io[i].len <= JOINED_MAX)
			last->len += io[i].len;
		else
			*++last = io[i];
	}
	return (unsigned)(last - joined) + 1;
}

static int run_joined(struct call *c)
{
	struct ummap_io joined[PIECES_MAX], *j = joined;
	struct call whole = *c;
	int err;

	whole.io = joined;
	whole.n = join(c->io, c->n, joined);
	err = run_async(&whole);
	for (unsigned i = 0; i < c->n && !err; i++) {
		struct ummap_io *io = &c->io[i];

		j += io->off >= j->off + j->len;
		if (!j->res || j->len == io->len) {
			io->res = j->res;
			continue;
		}
		c->failed += io->off == j->off;
		run_again(c, io);
	}
	return err;
}

static void make_call(void *arg)
{
	struct call *c = arg;
	struct store *s = c->store;
	bool alone = !(s->geom.caps & UMMAP_CAP_PARALLEL);

	if (alone)
		futex_lock(&s->turn);
	switch (c->kind) {
	case CALL_ONE:
		c->err = run_one(s, c->io);
		break;
	case CALL_VECTOR:
		c->err = run_vector(c);
		break;
	case CALL_ASYNC:
		c->err = run_async(c);
		break;
	case CALL_JOINED:
		c->err = run_joined(c);
		break;
	case CALL_FLUSH:
		c->err = s->driver.flush(s->handle, 0, UINT64_MAX);
		break;
	case CALL_PUSH:
		c->err = s->driver.push(s->handle);
		break;
	case CALL_PERSIST:
		c->err = s->driver.persist(s->handle, c->io->buf, c->io->len);
		break;
	}
	if (alone)
		futex_unlock(&s->turn);
}

static int call_driver(struct call *c)
{
	if (c->store->geom.caps & UMMAP_CAP_FAULTSAFE)
		make_call(c);
	else
		worker_call(make_call, c);
	return c->err;
}

/* How many requests from io on touch one another. */
static unsigned run_length(const struct ummap_io *io, unsigned n)
{
	unsigned k = 1;

	while (k < n && k < PIECES_MAX && io[k].off == io[k - 1].off + io[k - 1].len)
		k++;
	return k;
}

static void count_calls(struct io_count *count, const struct ummap_io *io, unsigned calls, unsigned errors)
{
	bool reading = io->op == UMMAP_IO_READ;

	atomic_fetch_add_explicit(reading ? &count->read_requests : &count->write_requests, calls, memory_order_relaxed);
	if (errors)
		atomic_fetch_add_explicit(reading ? &count->read_errors : &count->write_errors, errors,
					  memory_order_relaxed);
}

void io_count(struct io_count *count, const struct ummap_io *io, unsigned n)
{
	uint64_t bytes = 0;
	unsigned errors = 0;

	for (unsigned i = 0; i < n; i++) {
		bytes += io[i].res == 0 ? io[i].len : 0;
		errors += io[i].res != 0;
	}
	atomic_fetch_add_explicit(io->op == UMMAP_IO_READ ? &count->read_bytes : &count->write_bytes, bytes,
				  memory_order_relaxed);
	count_calls(count, io, 1, errors);
}

bool io_async(const struct store *s)
{
	return (s->geom.caps & UMMAP_CAP_ASYNC) && s->driver.submit && s->driver.reap;
}

bool io_overlaps(const struct store *s)
{
	return io_async(s) && (s->geom.caps & UMMAP_CAP_FAULTSAFE) && (s->geom.caps & UMMAP_CAP_PARALLEL);
}

unsigned io_begin(struct store *s, struct ummap_io **io, unsigned n)
{
	int sent = s->driver.submit(s->handle, io, n);

	return sent > 0 ? (unsigned)sent : 0;
}

int io_end(struct store *s, struct ummap_io **done, unsigned max)
{
	return s->driver.reap(s->handle, done, max, 1);
}

int io_run(struct store *s, struct ummap_io *io, unsigned n, bool together, struct io_count *count)
{
	bool async = io_async(s);
	bool vector = together && (io->op == UMMAP_IO_READ ? !!s->driver.readv : !!s->driver.writev);
	int err = 0;

	for (unsigned i = 0, k; i < n; i += k) {
		struct call c = { .store = s, .io = io + i, .kind = CALL_ONE };

		k = 1;
		if (async) {
			k = n - i < PIECES_MAX ? n - i : PIECES_MAX;
			c.kind = together && k > 1 ? CALL_JOINED : CALL_ASYNC;
		} else if (vector) {
			k = run_length(io + i, n - i);
			c.kind = k > 1 ? CALL_VECTOR : CALL_ONE;
		}
		c.n = k;
		if (call_driver(&c) < 0) {
			for (unsigned j = i; j < i + k; j++)
				io[j].res = io[j].res ? io[j].res : c.err;
		}
		for (unsigned j = i; j < i + k && !err; j++)
			err = io[j].res;
		io_count(count, io + i, k);
		if (c.failed)
			count_calls(count, io, c.again, c.failed);
	}
	return err;
}

static void count_flush(struct io_count *count, int err)
{
	atomic_fetch_add_explicit(&count->flushes, 1, memory_order_relaxed);
	if (err)
		atomic_fetch_add_explicit(&count->write_errors, 1, memory_order_relaxed);
}

int io_flush(struct store *s, bool *kept, struct io_count *count)
{
	struct call c = { .store = s, .kind = CALL_FLUSH };
	int err;

	*kept = false;
	if (!s->driver.flush)
		return 0;
	err = call_driver(&c);
	count_flush(count, err);
	*kept = err > 0;
	return *kept ? -err : err;
}

bool io_push(struct store *s, int *err)
{
	struct call c = { .store = s, .kind = CALL_PUSH };

	*err = s->driver.push ? call_driver(&c) : -EOPNOTSUPP;
	return *err != -EOPNOTSUPP;
}

/* By the thread that asks: what is mapped in place has no faults. */
int io_persist(struct store *s, void *addr, size_t len, struct io_count *count)
{
	struct ummap_io range = { .buf = addr, .len = len };
	struct call c = { .store = s, .kind = CALL_PERSIST, .io = &range };
	bool kept;

	if (!s->driver.persist)
		return io_flush(s, &kept, count);
	make_call(&c);
	count_flush(count, c.err);
	return c.err;
}
