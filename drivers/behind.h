/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver behind a filter. The functions replace calls that the driver lacks. Without
 * UMMAP_CAP_PARALLEL, they call the driver one at a time, so any thread may use them. They may run
 * in a signal handler if the driver's calls may.
 */
#ifndef DRIVERS_BEHIND_H
#define DRIVERS_BEHIND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <ummap-driver.h>

struct behind {
	struct ummap_driver driver;  /* a copy: calls that an older driver does not know are NULL */
	void *h;
	uint32_t caps;               /* as it has said */
	pid_t pid;                   /* the process that has opened it */
	_Atomic uint64_t size;       /* where it cannot say: as opened, or as written */
	_Atomic uint32_t turn;       /* across one call, without UMMAP_CAP_PARALLEL */
};

/* Opens what is behind `uri`, or the descriptor if fd is not negative. Removes from geom->caps what
 * only the driver's own calls could do: asynchronous transfers, which are in b->caps still, and
 * page-cache mappings. */
int behind_open(struct behind *b, const struct ummap_uri *uri, int fd, int oflags,
		struct ummap_geom *geom);
int behind_close(struct behind *b);
/* The URI of the store behind the filter, with absolute paths; "" if it is longer than `size`. */
void behind_uri(const struct ummap_uri *uri, char *to, size_t size);
/* The drivers behind the filter, as in "cow+posix". Changes that were written through other drivers
 * belong to other contents. Filters that leave all bytes as they are are left out, and all drivers
 * of files count as posix. */
#define BEHIND_WAY 128
void behind_way(const struct ummap_uri *uri, char way[BEHIND_WAY]);
/* Whether a parent process opened it. The only valid call then is behind_close. */
bool behind_inherited(const struct behind *b);
int behind_readv(struct behind *b, const struct iovec *iov, int n, uint64_t off);
int behind_writev(struct behind *b, const struct iovec *iov, int n, uint64_t off);
int behind_read(struct behind *b, void *buf, size_t len, uint64_t off);
int behind_write(struct behind *b, const void *buf, size_t len, uint64_t off);
int behind_flush(struct behind *b, uint64_t off, uint64_t len);
/* -EOPNOTSUPP: it cannot. */
int behind_resize(struct behind *b, uint64_t size);
int behind_size(struct behind *b, uint64_t *size);
/* -EOPNOTSUPP: writes do not change it. */
int behind_identity(struct behind *b, uint64_t id[2]);
/* Both return -EOPNOTSUPP if the driver lacks the call. */
int behind_commits(struct behind *b, uint64_t *oldest, uint64_t *newest);
int behind_push(struct behind *b);
void behind_set_notice(struct behind *b, ummap_notice *notice, void *arg);
/* Whether requests can be in flight while other threads begin some. */
bool behind_is_async(const struct behind *b);
int behind_submit(struct behind *b, struct ummap_io *io);
int behind_reap(struct behind *b, struct ummap_io **done, unsigned max, unsigned min);
int behind_lock(struct behind *b, uint64_t off, uint64_t len, int how, char why[160]);
int behind_hand_over(struct behind *b, struct ummap_handover *to);

/* The calls NAME_open and NAME_open_fd of a filter, by a function that opens the store behind it by
 * a URI, or by a descriptor that is not negative. */
#define OPENING_CALLS(name, open_either)                                                           \
	static int name##_open(const struct ummap_uri *uri, int oflags, void **h,                  \
			       struct ummap_geom *geom)                                            \
	{                                                                                          \
		return open_either(uri, -1, oflags, h, geom);                                      \
	}                                                                                          \
	static int name##_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,       \
				  struct ummap_geom *geom)                                         \
	{                                                                                          \
		return open_either(uri, fd, oflags, h, geom);                                      \
	}

#endif
