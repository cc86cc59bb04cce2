/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores: open driver handles. All reads, writes and flushes go through these functions. */
#ifndef IO_H
#define IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <ummap-driver.h>

#include "io/store.h"

/* Counters of requests; the caller adds them up. */
struct io_count {
	_Atomic uint64_t read_bytes, read_requests, write_bytes, write_requests, flushes;
	_Atomic uint64_t read_errors, write_errors;
};

/* Checks that a URI without a path names existing drivers and keys. Returns 0, or -EINVAL with a
 * message. */
int io_check(const char *uri);
/* Opens a store. Returns 0, or -errno with a message. The environment gives the defaults of some
 * keys. */
int io_open(const char *uri, int oflags, struct store **store);
/* Opens a store for a descriptor. uri: drivers and keys, without a path; NULL: the best driver for
 * files that works here. Returns 0, or -errno with a message. */
int io_open_fd(const char *uri, int fd, int oflags, struct store **store);
/* The drivers below the filters of a URI without a path. */
struct io_below {
	const struct ummap_driver *driver;
	const struct ummap_uri *uri;     /* URI that the driver's open receives */
};
/* Opens the filters of a URI without path in front of another driver. */
int io_open_filters(const char *filters, const struct io_below *below, int oflags,
		    struct store **store);
/* Makes a store of an open handle. The handle belongs to the caller until io_take. */
int io_adopt(const struct ummap_driver *driver, void *handle, const struct ummap_geom *geom,
	     int oflags, struct store **store);
/* From now on, the end of the store closes its handle. */
void io_take(struct store *store);
/* Adds an owner to a store; each owner closes it once. */
struct store *io_hold(struct store *store);
void io_close(struct store *store);
/* Closes the store like io_close, for an owner that has made all of its contents durable. Returns
 * -EUCLEAN with a message if the driver has lost a part of them. */
int io_complete(struct store *store);
/* Frees a store that has one owner and was not used, but leaves its handle open. The caller gets
 * the handle, and a copy of the driver's table. */
void io_part(struct store *store, struct ummap_driver *driver, void **handle);

const struct ummap_geom *io_geom(const struct store *store);
/* Whether two handles are known to be of one store. */
bool io_same(const struct store *a, const struct store *b);

/* Finds the identity of the store that a URI names, or that a descriptor names through the drivers
 * of a URI without path (NULL: the default driver of io_open_fd). Returns 0, or -errno with a
 * message. */
struct identity;
int io_identify(const char *uri, int fd, struct identity *id);
/* Whether an open store has this identity, so that its handle can be used in place of a new one. */
bool io_is(const struct store *store, const struct identity *id);
/* Whether an open store may have the same bytes at its end: see io_hand_over. */
bool io_meets(const struct store *store, const struct identity *id);
/* Whether two handles of one store are interchangeable. */
bool io_is_like(const struct store *a, const struct store *b);
/*
 * Steps of handing a store over to another handle (ummap-driver.h: hand_over), which this thread
 * opens next: `how` is UMMAP_HANDOVER_KEEP or _SWITCH, and then perhaps _FINISH, with the other
 * handle. No request may run, and no other thread may write to the store. io_close, or
 * io_cancel_hand_over, ends it. Returns 0, or -errno with a message. _FINISH returns 1 if the other
 * handle now shows the contents of the store.
 */
int io_hand_over(struct store *store, int how, const char *uri, int fd, const struct store *other);
void io_cancel_hand_over(struct store *store);
/* Locks a range of the store (UMMAP_LOCK_*), or unlocks it. Returns 0; -EBUSY, with the holder in
 * `why`; or another negative errno value if the driver has locks and the store does not support
 * them. */
int io_lock(struct store *store, uint64_t off, uint64_t len, int how, char why[160]);
/* The current size of the store in bytes. */
uint64_t io_size(struct store *store);
/* Whether a write beyond the end of the store makes the store longer. */
bool io_grows(const struct store *s);
/* Makes a store at least `size` bytes long, if the driver can. The store must not have requests in
 * flight. */
int io_lengthen(struct store *store, uint64_t size);
/* In a forked child: no other thread makes a store longer. */
void io_forget(void);

/*
 * Runs n requests, which are sorted by offset and have the same op, and waits for all of them.
 * Adjacent ones are merged if `together`. Each request gets its result in `res`. Returns 0 or the
 * first error. Thread-safe and fault-safe.
 */
int io_run(struct store *store, struct ummap_io *io, unsigned n, bool together,
	   struct io_count *count);
/* Whether requests wait for a network (UMMAP_CAP_REMOTE). */
bool io_is_remote(const struct store *store);
/* Whether the driver is asynchronous. */
static inline bool io_async(const struct store *store)
{
	return store->async;
}
/*
 * For a thread that keeps several requests in flight. io_overlaps returns whether the store
 * supports this. io_begin starts those of the first n requests that the driver accepts now, and
 * returns their number. io_end waits for at least one request that the thread has started. It
 * returns the number of finished requests; or -errno, and then their results are unknown. The
 * thread must not start other requests, of any store, before all of them are done. The caller
 * counts finished requests by io_count; io_count_calls counts n requests that took `calls` calls of
 * the driver, of which `errors` failed in addition to the requests.
 */
static inline bool io_overlaps(const struct store *store)
{
	return store->overlaps;
}
unsigned io_begin(struct store *store, struct ummap_io **io, unsigned n);
int io_end(struct store *store, struct ummap_io **done, unsigned max);
void io_count_calls(struct io_count *count, const struct ummap_io *io, unsigned n, unsigned calls,
		    unsigned errors);
static inline void io_count(struct io_count *count, const struct ummap_io *io, unsigned n)
{
	io_count_calls(count, io, n, 1, 0);
}
/* Flushes the store. *kept: the flush has failed, but the driver still has all that was written,
 * and the next flush tries again. */
int io_flush(struct store *store, bool *kept, struct io_count *count);

/* Flushes the store when no sync was requested. Returns false if the driver has no such call; then
 * the caller must flush. */
bool io_push(struct store *store, int *err);
/* Gets the oldest and the newest epoch at which the store can be opened. Returns 0; -EOPNOTSUPP if
 * the store has no epochs; or another negative errno value. */
int io_epoch(struct store *store, uint64_t *oldest, uint64_t *newest);

/* Whether the driver can map pages of the store in place. */
bool io_maps(const struct store *store);
/* Maps pages of the store at addr. Returns -ENOTSUP if these pages cannot be mapped. No other call
 * of the store may run. */
int io_map(struct store *store, void *addr, size_t len, uint64_t off, int prot);
/* Whether the driver can map pages of the page cache. */
static inline bool io_can_map_pagecache(const struct store *store)
{
	return store->shows_pagecache;
}
/* Maps pages of the page cache: see map_pagecache in ummap-driver(3). */
int io_map_pagecache(struct store *store, void *addr, size_t len, uint64_t off);
/* Whether bytes [off, off + len) of the store are known to read as zeros now. Every write that
 * ended before the call is taken into account, also one of another process. */
bool io_is_hole(struct store *store, uint64_t off, size_t len);
/* Makes stores to pages in place durable. */
int io_persist(struct store *store, void *addr, size_t len, struct io_count *count);

#endif
