/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only caller of drivers. Takes turns where a driver cannot work in parallel, keeps drivers that are not
 * fault-safe off the faulting thread, makes one vectored request of neighbours, and runs asynchronous
 * drivers by submit and reap; a synchronous driver is the case where submitting is already doing.
 * Locks: `turn` of a store, held across one call of a driver that has no PARALLEL, or from submit to reap.
 */
#include "io.h"

#include "config.h"
#include "log.h"
#include "plugin.h"
#include "sys.h"
#include "uri.h"
#include "worker.h"

#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 32 /* of one vectored request */
#define CALL_THREADS 4 /* for drivers that must not run in a signal handler */

struct store {
	struct ummap_driver driver;  /* a copy, so that fields an older driver lacks are NULL */
	void *handle;
	struct ummap_geom geom;
	_Atomic uint32_t turn;
	_Atomic unsigned owners;
};

/* One call of a driver, packed so that a worker can make it. */
struct call {
	struct store *store;
	enum { CALL_ONE, CALL_VECTOR, CALL_ASYNC, CALL_FLUSH } kind;
	struct ummap_io *io;
	unsigned n;
	void (*meanwhile)(void *arg); /* NULL, or to be called once with arg */
	void *arg;
	int err;
};

/* A word of `list`, which blanks separate. */
static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	while (list && *list) {
		size_t n = strcspn(list, " ");

		if (n == len && memcmp(list, word, len) == 0)
			return true;
		list += n + strspn(list + n, " ");
	}
	return false;
}

/* Finds the driver of each layer and hands each filter the next one. */
static int resolve(struct uri *u, const struct ummap_driver **outer)
{
	const struct ummap_driver *next = NULL;

	for (unsigned i = u->layers; i-- > 0;) {
		struct ummap_uri *layer = &u->layer[i];
		const struct ummap_driver *d = plugin_driver(layer->scheme);
		int err = d ? 0 : -EINVAL;

		if (!err && !d->filter != !next)
			err = fail(EINVAL, next ? "driver \"%s\" is no filter: nothing can follow it" :
				   "driver \"%s\" is a filter: it needs +driver behind it", d->scheme);
		if (!err && has_word(d->keys, "direct"))
			err = uri_default(u, i, "direct", config.direct);
		if (!err && has_word(d->keys, "cached"))
			err = uri_default(u, i, "cached", config.cached);
		if (err)
			return err;
		for (unsigned k = 0; k < layer->nkeys; k++) {
			if (!has_word(d->keys, layer->keys[k].name))
				return fail(EINVAL, "driver \"%s\" has no key \"%s\"; it has: %s", d->scheme,
					    layer->keys[k].name, d->keys ? d->keys : "none");
		}
		layer->next = next;
		layer->next_uri = next ? layer + 1 : NULL;
		next = d;
	}
	*outer = next;
	return 0;
}

static int open_handle(struct store *s, const struct uri *u, int fd, int oflags)
{
	const struct ummap_uri *uri = &u->layer[0];
	int err;

	if (fd >= 0) {
		if (!s->driver.open_fd)
			return fail(EINVAL, "driver \"%s\" does not take descriptors", uri->scheme);
		err = s->driver.open_fd(uri, fd, oflags, &s->handle, &s->geom);
	} else {
		if (!*uri->path)
			return fail(EINVAL, "the URI names no path: it must be %s:path", uri->scheme);
		err = s->driver.open(uri, oflags, &s->handle, &s->geom);
	}
	if (!err)
		return 0;
	if (s->geom.why[0])
		return fail(-err, "%s", s->geom.why);
	return fail(-err, "%s cannot open %s: %s", uri->scheme, fd >= 0 ? "the descriptor" : uri->path,
		    strerror(-err));
}

static int open_store(const char *text, int fd, int oflags, struct store **store)
{
	const struct ummap_driver *d = NULL;
	struct uri u;
	struct store *s;
	int err = uri_parse(text, &u);

	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	err = s ? resolve(&u, &d) : fail(ENOMEM, "no memory for a store");
	if (!err) {
		memcpy(&s->driver, d, min_size(d->struct_size, sizeof(s->driver)));
		err = open_handle(s, &u, fd, oflags);
	}
	uri_free(&u);
	if (!err && (oflags & UMMAP_O_WRITE) && (!s->driver.write || !(s->geom.caps & UMMAP_CAP_WRITE))) {
		s->driver.close(s->handle);
		err = fail(EACCES, "driver \"%s\" cannot write this store", d->scheme);
	}
	if (!err && !(s->geom.caps & UMMAP_CAP_FAULTSAFE)) {
		err = worker_start_calls(CALL_THREADS);
		if (err)
			s->driver.close(s->handle);
	}
	if (err) {
		free(s);
		return err;
	}
	s->owners = 1;
	*store = s;
	return 0;
}

int io_check(const char *text)
{
	const struct ummap_driver *d;
	struct uri u;
	int err = uri_parse(text, &u);

	if (err)
		return err;
	err = resolve(&u, &d);
	uri_free(&u);
	return err;
}

int io_open(const char *uri, int oflags, struct store **store)
{
	return open_store(uri, -1, oflags, store);
}

int io_open_fd(const char *uri, int fd, int oflags, struct store **store)
{
	static _Atomic bool told;
	int err;

	if (uri)
		return open_store(uri, fd, oflags, store);
	err = open_store("uring", fd, oflags, store);
	if (err != -EOPNOTSUPP)
		return err;
	if (!atomic_exchange(&told, true))
		log_line(LOG_INFO, "io", "%s; the driver is posix", fail_message());
	fail_clear();
	return open_store("posix", fd, oflags, store);
}

struct store *io_hold(struct store *store)
{
	store->owners++;
	return store;
}

void io_close(struct store *store)
{
	int err;

	if (--store->owners > 0)
		return;
	err = store->driver.close(store->handle);
	if (err)
		log_line(LOG_WARN, "io", "closing a %s store: %s", store->driver.scheme, strerror(-err));
	free(store);
}

void io_part(struct store *store, struct ummap_driver *driver, void **handle)
{
	*driver = store->driver;
	*handle = store->handle;
	free(store);
}

const struct ummap_geom *io_geom(const struct store *store)
{
	return &store->geom;
}

bool io_same(const struct store *a, const struct store *b)
{
	return a == b || (a->geom.id[0] && a->geom.id[0] == b->geom.id[0] && a->geom.id[1] == b->geom.id[1]);
}

uint64_t io_size(struct store *store)
{
	uint64_t size;

	if (!store->driver.size || store->driver.size(store->handle, &size) < 0)
		return store->geom.size;
	return size;
}

static int run_one(struct store *s, struct ummap_io *io)
{
	if (io->op == UMMAP_IO_READ)
		io->res = s->driver.read(s->handle, io->buf, io->len, io->off);
	else
		io->res = s->driver.write(s->handle, io->buf, io->len, io->off);
	return io->res;
}

static int run_vector(struct store *s, struct ummap_io *io, unsigned n)
{
	struct iovec iov[PIECES_MAX];
	int res;

	for (unsigned i = 0; i < n; i++)
		iov[i] = (struct iovec){ io[i].buf, io[i].len };
	if (io->op == UMMAP_IO_READ)
		res = s->driver.readv(s->handle, iov, (int)n, io->off);
	else
		res = s->driver.writev(s->handle, iov, (int)n, io->off);
	for (unsigned i = 0; i < n; i++)
		io[i].res = res;
	return res;
}

static void do_meanwhile(struct call *c)
{
	if (c->meanwhile)
		c->meanwhile(c->arg);
	c->meanwhile = NULL;
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
		do_meanwhile(c);
		/* Nobody looks at one before all are there. */
		got = s->driver.reap(s->handle, done, PIECES_MAX, sent - reaped);
		if (got < 0)
			return got;
		reaped += (unsigned)got;
	}
	return 0;
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
		c->err = run_vector(s, c->io, c->n);
		break;
	case CALL_ASYNC:
		c->err = run_async(c);
		break;
	case CALL_FLUSH:
		c->err = s->driver.flush(s->handle, 0, UINT64_MAX);
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

void io_count(struct io_count *count, const struct ummap_io *io, unsigned n)
{
	bool reading = io->op == UMMAP_IO_READ;
	uint64_t bytes = 0;
	unsigned errors = 0;

	for (unsigned i = 0; i < n; i++) {
		bytes += io[i].res == 0 ? io[i].len : 0;
		errors += io[i].res != 0;
	}
	atomic_fetch_add_explicit(reading ? &count->read_bytes : &count->write_bytes, bytes,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(reading ? &count->read_requests : &count->write_requests, 1,
				  memory_order_relaxed);
	if (errors)
		atomic_fetch_add_explicit(reading ? &count->read_errors : &count->write_errors, errors,
					  memory_order_relaxed);
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
	return io_run_while(s, io, n, together, count, NULL, NULL);
}

int io_run_while(struct store *s, struct ummap_io *io, unsigned n, bool together, struct io_count *count,
		 void (*meanwhile)(void *arg), void *arg)
{
	bool async = io_async(s);
	bool vector = together && (io->op == UMMAP_IO_READ ? !!s->driver.readv : !!s->driver.writev);
	int err = 0;

	for (unsigned i = 0, k; i < n; i += k) {
		struct call c = { .store = s, .io = io + i, .kind = CALL_ONE, .meanwhile = meanwhile, .arg = arg };

		k = 1;
		if (async) {
			k = n - i < PIECES_MAX ? n - i : PIECES_MAX;
			c.kind = CALL_ASYNC;
		} else if (vector) {
			k = run_length(io + i, n - i);
			c.kind = k > 1 ? CALL_VECTOR : CALL_ONE;
		}
		c.n = k;
		meanwhile = NULL;
		if (call_driver(&c) < 0) {
			for (unsigned j = i; j < i + k; j++)
				io[j].res = io[j].res ? io[j].res : c.err;
		}
		for (unsigned j = i; j < i + k && !err; j++)
			err = io[j].res;
		io_count(count, io + i, k);
	}
	return err;
}

int io_flush(struct store *s, struct io_count *count)
{
	struct call c = { .store = s, .kind = CALL_FLUSH };
	int err;

	if (!s->driver.flush)
		return 0;
	err = call_driver(&c);
	atomic_fetch_add_explicit(&count->flushes, 1, memory_order_relaxed);
	if (err)
		atomic_fetch_add_explicit(&count->write_errors, 1, memory_order_relaxed);
	return err;
}

bool io_maps(const struct store *s)
{
	return s->driver.map;
}

int io_map(struct store *s, void *addr, size_t len, uint64_t off, int prot)
{
	return s->driver.map ? s->driver.map(s->handle, addr, len, off, prot) : -ENOTSUP;
}

bool io_lends(const struct store *s)
{
	const unsigned needed = UMMAP_CAP_LEND | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_PARALLEL;

	return s->driver.lend && (s->geom.caps & needed) == needed;
}

int io_lend(struct store *s, void *addr, size_t len, uint64_t off)
{
	return s->driver.lend(s->handle, addr, len, off);
}

int io_persist(struct store *s, void *addr, size_t len, struct io_count *count)
{
	bool alone = !(s->geom.caps & UMMAP_CAP_PARALLEL);
	int err;

	if (!s->driver.persist)
		return io_flush(s, count);
	if (alone)
		futex_lock(&s->turn);
	err = s->driver.persist(s->handle, addr, len);
	if (alone)
		futex_unlock(&s->turn);
	atomic_fetch_add_explicit(&count->flushes, 1, memory_order_relaxed);
	if (err)
		atomic_fetch_add_explicit(&count->write_errors, 1, memory_order_relaxed);
	return err;
}
