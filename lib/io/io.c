/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores, from opening to closing. Only this file and io_run.c call drivers. */
#include "io/io.h"

#include "base/config.h"
#include "base/log.h"
#include "io/plugin.h"
#include "io/store.h"
#include "base/sys.h"
#include "io/uri.h"
#include "base/worker.h"

#include <stdlib.h>
#include <string.h>

/* Threads that call drivers which must not run in a signal handler. */
#define CALL_THREADS 4
/* Threads for jobs of readahead, each of which waits for requests of 2 MiB, so that all of the
 * readahead for a store behind a network can be in flight. */
#define REMOTE_WORKERS 64

/* Whether `word` is in `list`, whose words are separated by blanks. */
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

/* Finds the driver of each layer, and gives the next one to each filter. below: the drivers below
 * the last layer; NULL: none. */
static int resolve(struct uri *u, const struct io_below *below, const struct ummap_driver **outer)
{
	const struct ummap_driver *next = below ? below->driver : NULL;
	const struct ummap_uri *next_uri = below ? below->uri : NULL;

	for (unsigned i = u->layers; i-- > 0;) {
		struct ummap_uri *layer = &u->layer[i];
		const struct ummap_driver *d = plugin_driver(layer->scheme);
		int err = d ? 0 : -EINVAL;

		if (!err && !d->filter != !next)
			err = fail(EINVAL, next ?
				   "cannot put the driver '%s' before another: it is not a filter" :
				   "cannot use the filter '%s' alone: it needs +driver behind it",
				   d->scheme);
		if (!err && has_word(d->keys, "direct"))
			err = uri_default(u, i, "direct", config.direct);
		if (!err && has_word(d->keys, "cached"))
			err = uri_default(u, i, "cached", config.cached);
		if (err)
			return err;
		for (unsigned k = 0; k < layer->nkeys; k++) {
			if (!has_word(d->keys, layer->keys[k].name))
				return fail(EINVAL, "cannot use the key '%s': the driver '%s' does "
					    "not have it. Its keys are: %s", layer->keys[k].name,
					    d->scheme, d->keys ? d->keys : "none");
		}
		layer->next = next;
		layer->next_uri = next_uri;
		next = d;
		next_uri = layer;
	}
	*outer = next;
	return 0;
}

/* Logs a failure that the driver compensates for, and therefore reports by no call. */
static void log_notice(void *unused, const char *message)
{
	(void)unused;
	log_line(LOG_WARN, "io", "%s", message);
}

static int open_handle(struct store *s, const struct uri *u, int fd, int oflags)
{
	const struct ummap_uri *uri = &u->layer[0];
	int err;

	if (fd >= 0) {
		if (!s->driver.open_fd)
			return fail(EINVAL, "cannot open a descriptor: the driver '%s' takes none",
				    uri->scheme);
		err = s->driver.open_fd(uri, fd, oflags, &s->handle, &s->geom);
	} else {
		if (!*uri->path)
			return fail(EINVAL, "cannot open the URI: it has no path. Try %s:PATH",
				    uri->scheme);
		err = s->driver.open(uri, oflags, &s->handle, &s->geom);
	}
	if (!err && s->geom.why[0])
		log_line(LOG_WARN, "io", "%s", s->geom.why);
	if (!err)
		return 0;
	if (s->geom.why[0])
		return fail(-err, "%s", s->geom.why);
	if (fd >= 0)
		return fail(-err, "cannot open the descriptor %d by the driver '%s': %s", fd,
			    uri->scheme, strerror(-err));
	return fail(-err, "cannot open '%s' by the driver '%s': %s", uri->path, uri->scheme,
		    strerror(-err));
}

/* Checks an open handle and makes it usable for requests. */
static int prepare(struct store *s, int oflags)
{
	const unsigned parallel = UMMAP_CAP_FAULTSAFE | UMMAP_CAP_PARALLEL;
	unsigned caps = s->geom.caps;
	int err = 0;

	s->async = (caps & UMMAP_CAP_ASYNC) && s->driver.submit && s->driver.reap;
	s->overlaps = s->async && (caps & parallel) == parallel;
	s->shows_pagecache = s->driver.map_pagecache && (caps & UMMAP_CAP_PAGECACHE) &&
			     (caps & parallel) == parallel;
	if ((oflags & UMMAP_O_WRITE) && (!s->driver.write || !(s->geom.caps & UMMAP_CAP_WRITE)))
		return fail(EACCES, "cannot open the store for writing: the driver '%s' cannot "
			    "write it", s->driver.scheme);
	if (!(s->geom.caps & UMMAP_CAP_FAULTSAFE))
		err = worker_start_calls(CALL_THREADS);
	if (!err && io_is_remote(s))
		err = worker_start(REMOTE_WORKERS);
	if (!err && s->driver.set_notice)
		s->driver.set_notice(s->handle, log_notice, NULL);
	s->owners = 1;
	return err;
}

static void copy_table(struct store *s, const struct ummap_driver *driver)
{
	memcpy(&s->driver, driver, min_size(driver->struct_size, sizeof(s->driver)));
}

/* Gives the path of the driver below the filters to each filter. */
static int take_path(struct uri *u, const struct io_below *below)
{
	if (!below->uri->path || !*below->uri->path)
		return fail(EINVAL, "cannot put the filters before the driver '%s': its URI has no "
			    "path", below->driver->scheme);
	if (*u->layer[0].path)
		return fail(EINVAL, "cannot put the filters before the driver '%s': they have the "
			    "path '%s'. Try '%s:' without a path", below->driver->scheme,
			    u->layer[0].path, u->layer[0].scheme);
	for (unsigned i = 0; i < u->layers; i++)
		u->layer[i].path = below->uri->path;
	return 0;
}

static int open_store(const char *text, const struct io_below *below, int fd, int oflags,
		      struct store **store)
{
	const struct ummap_driver *d = NULL;
	struct uri u;
	struct store *s;
	int err = uri_parse(text, &u);

	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	err = s ? 0 : fail(ENOMEM, "cannot open the store: no memory");
	if (!err && below)
		err = take_path(&u, below);
	if (!err)
		err = resolve(&u, below, &d);
	if (!err) {
		copy_table(s, d);
		err = open_handle(s, &u, fd, oflags);
	}
	/* The identity is made after the open, because the open may create the file. */
	if (!err) {
		err = identity_make(&s->identity, &u, fd);
		if (!err)
			err = prepare(s, oflags);
		if (err) {
			s->driver.close(s->handle);
			identity_free(&s->identity);
		}
	}
	uri_free(&u);
	if (err) {
		free(s);
		return err;
	}
	*store = s;
	return 0;
}

int io_open_filters(const char *filters, const struct io_below *below, int oflags,
		    struct store **store)
{
	return open_store(filters, below, -1, oflags, store);
}

int io_adopt(const struct ummap_driver *driver, void *handle, const struct ummap_geom *geom,
	     int oflags, struct store **store)
{
	struct store *s = calloc(1, sizeof(*s));
	int err = s ? 0 : fail(ENOMEM, "cannot use the handle: no memory");

	if (!err) {
		copy_table(s, driver);
		s->handle = handle;
		s->geom = *geom;
		s->is_callers = true;
		err = identity_of_handle(&s->identity, driver->scheme);
	}
	if (!err)
		err = prepare(s, oflags);
	if (err) {
		if (s)
			identity_free(&s->identity);
		free(s);
		return err;
	}
	*store = s;
	return 0;
}

void io_take(struct store *store)
{
	store->is_callers = false;
}

int io_check(const char *text)
{
	const struct ummap_driver *d;
	struct uri u;
	int err = uri_parse(text, &u);

	if (err)
		return err;
	err = resolve(&u, NULL, &d);
	if (!err && *u.layer[0].path)
		err = fail(EINVAL, "it has the path '%s'. Try a URI without a path, such as %s or "
			   "%s:?key=value", u.layer[0].path, d->scheme, d->scheme);
	uri_free(&u);
	return err;
}

int io_open(const char *uri, int oflags, struct store **store)
{
	return open_store(uri, NULL, -1, oflags, store);
}

/* Whether io_uring has failed to work here. */
static _Atomic bool has_no_uring;

int io_open_fd(const char *uri, int fd, int oflags, struct store **store)
{
	int err;

	if (uri)
		return open_store(uri, NULL, fd, oflags, store);
	err = open_store("uring", NULL, fd, oflags, store);
	if (err != -EOPNOTSUPP)
		return err;
	if (!atomic_exchange(&has_no_uring, true))
		log_line(LOG_INFO, "io", "%s. The library uses the driver posix instead",
			 fail_message());
	fail_clear();
	return open_store("posix", NULL, fd, oflags, store);
}

struct store *io_hold(struct store *store)
{
	store->owners++;
	return store;
}

/* The last notice of a store while it is closed. */
struct notice {
	_Atomic uint32_t lock;
	char message[512];
};

static void keep_notice(void *arg, const char *message)
{
	struct notice *notice = arg;

	log_notice(NULL, message);
	futex_lock(&notice->lock);
	strncpy(notice->message, message, sizeof(notice->message) - 1);
	futex_unlock(&notice->lock);
}

static int close_handle(struct store *store)
{
	int err = store->is_callers ? 0 : store->driver.close(store->handle);

	if (err)
		log_line(LOG_WARN, "io", "cannot close a store of the driver '%s': %s",
			 store->driver.scheme, strerror(-err));
	identity_free(&store->identity);
	free(store);
	return err;
}

/* A forked child calls this, too. It must not wait for the lock of a notice, which another thread
 * of the parent may have held. */
void io_close(struct store *store)
{
	if (--store->owners == 0)
		close_handle(store);
}

int io_complete(struct store *store)
{
	struct notice notice = { .lock = 0 };
	int err;

	if (--store->owners > 0)
		return 0;
	if (store->driver.set_notice)
		store->driver.set_notice(store->handle, keep_notice, &notice);
	err = close_handle(store);
	/* Without a notice, the driver has stored all data. */
	if (!err || !*notice.message)
		return 0;
	return fail(EUCLEAN, "the mapping has ended, but its store was not closed completely: %s",
		    notice.message);
}

void io_part(struct store *store, struct ummap_driver *driver, void **handle)
{
	*driver = store->driver;
	*handle = store->handle;
	identity_free(&store->identity);
	free(store);
}

const struct ummap_geom *io_geom(const struct store *store)
{
	return &store->geom;
}

bool io_same(const struct store *a, const struct store *b)
{
	return a == b || (a->geom.id[0] && a->geom.id[0] == b->geom.id[0] &&
			  a->geom.id[1] == b->geom.id[1]);
}

/* ---- A store that is named by another URI ---- */

/* Returns the URI of the driver that io_open_fd takes by default if the URI is NULL. */
static const char *driver_of(const char *text)
{
	return text ? text : has_no_uring ? "posix" : "uring";
}

int io_identify(const char *text, int fd, struct identity *id)
{
	const struct ummap_driver *d;
	struct uri u;
	int err = uri_parse(driver_of(text), &u);

	if (err)
		return err;
	err = resolve(&u, NULL, &d);
	if (!err)
		err = identity_make(id, &u, fd);
	uri_free(&u);
	return err;
}

bool io_is(const struct store *store, const struct identity *id)
{
	return identity_equal(&store->identity, id);
}

bool io_meets(const struct store *store, const struct identity *id)
{
	/* Without a file, stores of one URI may be the same or not. */
	return identity_meets(&store->identity, id) && (id->file[1] || store->driver.hand_over);
}

bool io_is_like(const struct store *a, const struct store *b)
{
	return a == b || (io_same(a, b) && strcmp(a->identity.way, b->identity.way) == 0);
}

int io_hand_over(struct store *store, int how, const char *text, int fd, const struct store *other)
{
	struct ummap_handover to = { .how = how,
				     .driver = other ? &other->driver : NULL,
				     .h = other ? other->handle : NULL };
	const struct ummap_driver *d;
	struct uri u;
	int err;

	if (!store->driver.hand_over)
		return 0;
	err = uri_parse(driver_of(text), &u);
	if (err)
		return err;
	err = resolve(&u, NULL, &d);
	if (!err) {
		to.to = &u.layer[0];
		err = store->driver.hand_over(store->handle, &to);
		if (err < 0)
			fail(-err, "cannot hand the store over to %s: %s",
			     fd < 0 ? text : "the descriptor", *to.why ? to.why : strerror(-err));
	}
	uri_free(&u);
	return err;
}

void io_cancel_hand_over(struct store *store)
{
	struct ummap_handover to = { .how = UMMAP_HANDOVER_CANCEL };
	int err = store->driver.hand_over ? store->driver.hand_over(store->handle, &to) : 0;

	if (err)
		log_line(LOG_ERROR, "io", "cannot go on with the %s store as before: %s. Try to "
			 "end the mapping and open it again", store->driver.scheme,
			 *to.why ? to.why : strerror(-err));
}

int io_lock(struct store *store, uint64_t off, uint64_t len, int how, char why[160])
{
	return store->driver.lock ? store->driver.lock(store->handle, off, len, how, why) : 0;
}

uint64_t io_size(struct store *store)
{
	uint64_t size;

	if (!store->driver.size || store->driver.size(store->handle, &size) < 0)
		return store->geom.size;
	return size;
}

/* The byte whose lock a process holds while it makes a store longer. No mapping locks this byte. */
#define GROWTH_BYTE ((uint64_t)INT64_MAX - 1)
/* Attempts to lock the byte, and ms between two attempts. */
#define GROWTH_TRIES 1000
#define GROWTH_WAIT_MS 10

/* Without the lock, a store could become shorter: if two processes have found it short, the one
 * that needs less may resize it last. */
static int lock_growth(struct store *s)
{
	static _Atomic uint32_t never;
	char who[160];
	int err = -EBUSY;

	for (int i = 0; i < GROWTH_TRIES && err == -EBUSY; i++) {
		if (i)
			futex_wait(&never, 0, GROWTH_WAIT_MS);
		err = io_lock(s, GROWTH_BYTE, 1, UMMAP_LOCK_EXCLUSIVE, who);
	}
	/* If the store has no locks, no other process is expected. */
	return err == -EBUSY ? err : 0;
}

static int lengthen(struct store *s, uint64_t size)
{
	int err = config.lock ? lock_growth(s) : 0;

	if (err)
		return err;
	if (io_size(s) < size) {
		err = s->driver.resize(s->handle, size);
		if (!err && !s->driver.size)
			s->geom.size = size;
	}
	if (config.lock)
		io_lock(s, GROWTH_BYTE, 1, UMMAP_LOCK_NONE, (char[160]){ "" });
	return err == -EOPNOTSUPP ? 0 : err;
}

bool io_is_remote(const struct store *s)
{
	return s->geom.caps & UMMAP_CAP_REMOTE;
}

bool io_grows(const struct store *s)
{
	return s->geom.caps & UMMAP_CAP_GROW;
}

/* Held while a store becomes longer. */
static _Atomic uint32_t lengthening;

int io_lengthen(struct store *s, uint64_t size)
{
	int err;

	if (!s->driver.resize || !io_grows(s) || io_size(s) >= size)
		return 0;
	futex_lock(&lengthening);
	err = lengthen(s, size);
	futex_unlock(&lengthening);
	return err;
}

void io_forget(void)
{
	lengthening = 0;
}

bool io_maps(const struct store *s)
{
	return s->driver.map;
}

int io_map(struct store *s, void *addr, size_t len, uint64_t off, int prot)
{
	return s->driver.map ? s->driver.map(s->handle, addr, len, off, prot) : -ENOTSUP;
}

int io_epoch(struct store *s, uint64_t *oldest, uint64_t *newest)
{
	return s->driver.commits ? s->driver.commits(s->handle, oldest, newest) : -EOPNOTSUPP;
}

int io_map_pagecache(struct store *s, void *addr, size_t len, uint64_t off)
{
	return s->driver.map_pagecache(s->handle, addr, len, off);
}
