/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests. Serializes the calls of a driver that cannot work in parallel, keeps the calls of a
 * driver that is not fault-safe off the faulting thread, and merges adjacent requests into a longer
 * or a vectored one. Runs asynchronous drivers by submit and reap; with a synchronous driver, a
 * submitted request is complete. Lock: `turn` of a store, which is held across one call of a driver
 * without PARALLEL, or from submit to reap.
 */
#include "io/io.h"

#include "io/store.h"
#include "base/sys.h"
#include "base/worker.h"

/* Requests of one call. They are on the stack. */
#define MAX_CALL_REQUESTS 32
/* Bytes of a merged request: short enough that several are in flight at a time. */
#define MAX_MERGED_BYTES ((size_t)2 << 20)

/* One call of a driver, packed so that a worker can make it. */
struct call {
	struct store *store;
	enum {
		CALL_ONE, CALL_VECTOR, CALL_ASYNC, CALL_MERGED, CALL_FLUSH, CALL_PUSH, CALL_PERSIST
	} kind;
	struct ummap_io *io;          /* requests; CALL_PERSIST: the mapped range */
	unsigned n;                   /* number of requests */
	unsigned failed;              /* number of merged requests that failed */
	unsigned again;               /* number of requests that were run again, one by one */
	int err;                      /* result of the call */
};

static int run_one(struct store *s, struct ummap_io *io)
{
	if (io->op == UMMAP_IO_READ)
		io->res = s->driver.read(s->handle, io->buf, io->len, io->off);
	else
		io->res = s->driver.write(s->handle, io->buf, io->len, io->off);
	return io->res;
}

/* Runs a request again that has failed as a part of a merged one. */
static void run_again(struct call *c, struct ummap_io *io)
{
	run_one(c->store, io);
	c->again++;
}

static int run_vector(struct call *c)
{
	struct store *s = c->store;
	struct iovec iov[MAX_CALL_REQUESTS];
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

/* A thread reaps only requests that it has submitted, so all of them belong to the call. */
static int run_async(struct call *c)
{
	struct store *s = c->store;
	struct ummap_io *list[MAX_CALL_REQUESTS], *done[MAX_CALL_REQUESTS];
	unsigned n = c->n, sent = 0, reaped = 0;

	for (unsigned i = 0; i < n; i++)
		list[i] = &c->io[i];
	while (reaped < n) {
		int got = sent < n ? s->driver.submit(s->handle, list + sent, n - sent) : 0;

		if (got < 0) {
			/* Unsent requests fail. Requests in flight must be reaped. */
			for (unsigned i = sent; i < n; i++)
				c->io[i].res = got;
			n = sent;
			continue;
		}
		sent += (unsigned)got;
		if (sent == reaped) {
			/* The driver accepts no request, and has none of this thread in flight. */
			run_one(s, list[sent]);
			sent++;
			reaped++;
			continue;
		}
		/* The caller needs all results: wait for all requests that were sent. */
		got = s->driver.reap(s->handle, done, MAX_CALL_REQUESTS, sent - reaped);
		if (got < 0)
			return got;
		reaped += (unsigned)got;
	}
	return 0;
}

/* Merges requests that are adjacent in the store and in memory, up to MAX_MERGED_BYTES. */
static int run_merged(struct call *c)
{
	struct ummap_io merged[MAX_CALL_REQUESTS], *j = merged;
	struct call whole = *c;
	int err;

	*j = c->io[0];
	for (struct ummap_io *io = c->io + 1; io < c->io + c->n; io++) {
		bool adjacent = (char *)j->buf + j->len == io->buf && j->off + j->len == io->off;

		if (adjacent && j->len + io->len <= MAX_MERGED_BYTES)
			j->len += io->len;
		else
			*++j = *io;
	}
	whole.io = merged;
	whole.n = (unsigned)(j - merged) + 1;
	err = run_async(&whole);
	j = merged;
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
	case CALL_MERGED:
		c->err = run_merged(c);
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

/* The number of requests, from io on, that are adjacent in the store. */
static unsigned count_adjacent(const struct ummap_io *io, unsigned n)
{
	unsigned k = 1;

	while (k < n && k < MAX_CALL_REQUESTS && io[k].off == io[k - 1].off + io[k - 1].len)
		k++;
	return k;
}

void io_count_calls(struct io_count *count, const struct ummap_io *io, unsigned n, unsigned calls,
		    unsigned errors)
{
	bool reading = io->op == UMMAP_IO_READ;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++) {
		bytes += io[i].res == 0 ? io[i].len : 0;
		errors += io[i].res != 0;
	}
	atomic_fetch_add_explicit(reading ? &count->read_bytes : &count->write_bytes, bytes,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(reading ? &count->read_requests : &count->write_requests, calls,
				  memory_order_relaxed);
	if (errors)
		atomic_fetch_add_explicit(reading ? &count->read_errors : &count->write_errors,
					  errors, memory_order_relaxed);
}

/* Only bytes that are data are remembered. If they have become a hole in the meantime, or if the
 * two numbers belong to different answers, this costs a read. A hole must not be remembered:
 * another process may have written to it since. */
bool io_is_hole(struct store *s, uint64_t off, size_t len)
{
	uint64_t begin = 0, end = UINT64_MAX;

	if (!s->driver.data || (off >= s->data_begin && off < s->data_end))
		return false;
	if (s->driver.data(s->handle, off, &begin, &end) < 0) {
		begin = 0;
		end = UINT64_MAX;
	}
	if (begin >= off + len)
		return true;
	if (begin <= off) {
		s->data_begin = begin;
		s->data_end = end;
	}
	return false;
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
	bool vector = together &&
		      (io->op == UMMAP_IO_READ ? !!s->driver.readv : !!s->driver.writev);
	int err = 0;

	for (unsigned i = 0, k; i < n; i += k) {
		struct call c = { .store = s, .io = io + i, .kind = CALL_ONE };

		k = 1;
		if (async) {
			k = n - i < MAX_CALL_REQUESTS ? n - i : MAX_CALL_REQUESTS;
			c.kind = together && k > 1 ? CALL_MERGED : CALL_ASYNC;
		} else if (vector) {
			k = count_adjacent(io + i, n - i);
			c.kind = k > 1 ? CALL_VECTOR : CALL_ONE;
		}
		c.n = k;
		if (call_driver(&c) < 0) {
			for (unsigned j = i; j < i + k; j++)
				io[j].res = io[j].res ? io[j].res : c.err;
		}
		for (unsigned j = i; j < i + k && !err; j++)
			err = io[j].res;
		io_count_calls(count, io + i, k, 1 + c.again, c.failed);
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

/* The calling thread calls the driver: accesses to pages in place cause no faults. */
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
