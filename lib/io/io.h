/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores: opened driver handles, and the only way to read, write and flush them. */
#ifndef IO_H
#define IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <ummap-driver.h>

struct store;

/* Counters of requests; the caller adds them up. */
struct io_count {
	_Atomic uint64_t read_bytes, read_requests, write_bytes, write_requests, flushes;
	_Atomic uint64_t read_errors, write_errors;
};

/* Whether a URI names existing drivers and keys, and no path: 0, or -EINVAL with a sentence. */
int io_check(const char *uri);
/* Both return 0, or -errno with a sentence. The environment gives the defaults of some keys. */
int io_open(const char *uri, int oflags, struct store **store);
/* uri NULL: the best driver for files that works here. */
int io_open_fd(const char *uri, int fd, int oflags, struct store **store);
/* Drivers below the filters of a URI without path, which the caller has instead of a scheme. */
struct io_below {
	const struct ummap_driver *driver;
	const struct ummap_uri *uri;     /* URI that the driver's open receives */
};
/* Opens the filters of a URI without path in front of another driver. */
int io_open_filters(const char *filters, const struct io_below *below, int oflags,
		    struct store **store);
/* Makes a store of an open handle. The handle is the caller's until io_take. */
int io_adopt(const struct ummap_driver *driver, void *handle, const struct ummap_geom *geom,
	     int oflags, struct store **store);
/* From now on, the end of the store closes its handle. */
void io_take(struct store *store);
/* Adds an owner to a store; each owner closes it once. */
struct store *io_hold(struct store *store);
void io_close(struct store *store);
/* The same, for who has asked for all of it to be in the store: what is not there then is -EUCLEAN, with a sentence. */
int io_complete(struct store *store);
/* Frees a store that has one owner and has not been used, but leaves its handle open: the caller gets it, with a
 * copy of the table. */
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
 * io_cancel_hand_over, ends it. 0, or -errno with a sentence; _FINISH: 1 if the other handle shows
 * now what the store does.
 */
int io_hand_over(struct store *store, int how, const char *uri, int fd, const struct store *other);
void io_cancel_hand_over(struct store *store);
/* Locks a range of the store (UMMAP_LOCK_*), or unlocks it: 0; -EBUSY, with the holder in why; another negative errno:
 * the driver has locks, but this store does not support them. */
int io_lock(struct store *store, uint64_t off, uint64_t len, int how, char why[160]);
/* Bytes of the store now. */
uint64_t io_size(struct store *store);
/* Whether writing past its end makes it longer. */
bool io_grows(const struct store *s);
/* Makes a store at least so long, if the driver can; the store has no mapping yet, and so no requests. */
int io_lengthen(struct store *store, uint64_t size);
/* In a forked child: no other thread makes a store longer. */
void io_forget(void);

/*
 * Runs n requests, sorted by offset and all of one op, and waits for all of them; adjacent ones are merged
 * if `together`. Each has its result in res; returns 0 or the first error. Thread- and fault-safe.
 */
int io_run(struct store *store, struct ummap_io *io, unsigned n, bool together, struct io_count *count);
/* Whether the driver is asynchronous. */
bool io_async(const struct store *store);
/*
 * For a thread that keeps several requests in flight. io_overlaps: whether this store supports it. io_begin: starts
 * those of the first n that the driver accepts now, and returns how many. io_end: waits for at least one of those that
 * the thread has started, and returns how many are done, or -errno: their results are unknown. The thread starts no
 * other requests, of any store, before all of them are done. io_count: counts them, which the caller has to do.
 */
bool io_overlaps(const struct store *store);
unsigned io_begin(struct store *store, struct ummap_io **io, unsigned n);
int io_end(struct store *store, struct ummap_io **done, unsigned max);
void io_count(struct io_count *count, const struct ummap_io *io, unsigned n);
/* *kept: the flush failed, but the driver still has all that was written, and tries again at the next flush. */
int io_flush(struct store *store, bool *kept, struct io_count *count);

/* Like io_flush, where no sync was requested. false: the driver has no such call, and the caller has to flush. */
bool io_push(struct store *store, int *err);
/* The oldest and the newest epoch that the store can be opened at: 0, or -errno; -EOPNOTSUPP: it has none. */
int io_epoch(struct store *store, uint64_t *oldest, uint64_t *newest);

/* Whether the driver can map the store's pages in place at all. */
bool io_maps(const struct store *store);
/* Maps the store's own pages at addr; -ENOTSUP: these cannot be. No other call on the store may run. */
int io_map(struct store *store, void *addr, size_t len, uint64_t off, int prot);
/* Whether the driver can map pages of the page cache; and maps them, as ummap-driver(3) says of
 * `map_pagecache`. */
bool io_can_map_pagecache(const struct store *store);
int io_map_pagecache(struct store *store, void *addr, size_t len, uint64_t off);
/* Whether bytes [off, off + len) of the store are known to read as zeros, as it is now: nothing that was written before
 * the call is missed, whoever wrote it. */
bool io_is_hole(struct store *store, uint64_t off, size_t len);
/* Makes stores into pages in place durable. */
int io_persist(struct store *store, void *addr, size_t len, struct io_count *count);

#endif
