/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores: opened driver handles, and the only way to read, write and flush them. */
#ifndef IO_H
#define IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <ummap-driver.h>

struct store;

/* What requests have cost; the caller sums it up. */
struct io_count {
	_Atomic uint64_t read_bytes, read_requests, write_bytes, write_requests, flushes;
	_Atomic uint64_t read_errors, write_errors;
};

/* Whether a URI names drivers and keys that there are, and no path: 0, or -EINVAL with a sentence. */
int io_check(const char *uri);
/* Both return 0, or -errno with a sentence. The environment has the defaults of some keys. */
int io_open(const char *uri, int oflags, struct store **store);
/* uri NULL: the best driver for files that works here. */
int io_open_fd(const char *uri, int fd, int oflags, struct store **store);
/* One more owner of a store; each closes it once. */
struct store *io_hold(struct store *store);
void io_close(struct store *store);
/* Ends a store that has one owner and has not been used, but not its handle: that goes to the caller, with a
 * copy of the table. */
void io_part(struct store *store, struct ummap_driver *driver, void **handle);

const struct ummap_geom *io_geom(const struct store *store);
/* Whether two handles are known to be of one store. */
bool io_same(const struct store *a, const struct store *b);
/* Locks a range of the store (UMMAP_LOCK_*), or gives it back: 0; -EBUSY, and who has it to why; another negative errno:
 * there should be locks, but there are none. */
int io_lock(struct store *store, uint64_t off, uint64_t len, int how, char why[160]);
/* Bytes of the store now. */
uint64_t io_size(struct store *store);
/* Makes a store at least so long, where it can be; the store has no mapping yet, and so no requests. */
int io_lengthen(struct store *store, uint64_t size);

/*
 * Runs n requests, sorted by offset and all of one op, and waits for all of them; those that touch leave
 * together if `together`. Each has its result in res; returns 0 or the first error. Thread- and fault-safe.
 */
int io_run(struct store *store, struct ummap_io *io, unsigned n, bool together, struct io_count *count);
/* Whether the driver is asynchronous. */
bool io_async(const struct store *store);
/*
 * For a thread that has several requests on their way: whether it can, of this store; starts those of the first n that
 * the driver takes now, and says how many; waits for at least one of those that the thread has started, and says how
 * many are done, or -errno: nobody can say what became of them. It starts nothing else, of any store, before all of
 * them are done. The caller counts them.
 */
bool io_overlaps(const struct store *store);
unsigned io_begin(struct store *store, struct ummap_io **io, unsigned n);
int io_end(struct store *store, struct ummap_io **done, unsigned max);
void io_count(struct io_count *count, const struct ummap_io *io, unsigned n);
/* *kept: it failed, but the driver has all that was written, and tries again at the next flush. */
int io_flush(struct store *store, bool *kept, struct io_count *count);

/* Whether the driver can put pages in place at all. */
bool io_maps(const struct store *store);
/* Puts the store's own pages at addr; -ENOTSUP: not these. By a thread that has no other call on the store. */
int io_map(struct store *store, void *addr, size_t len, uint64_t off, int prot);
/* Whether the driver lends pages that the kernel has in memory; and has it do so, as the driver's call says. */
bool io_lends(const struct store *store);
int io_lend(struct store *store, void *addr, size_t len, uint64_t off);
/* Makes durable what was stored into pages that are in place. */
int io_persist(struct store *store, void *addr, size_t len, struct io_count *count);

#endif
