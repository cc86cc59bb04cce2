/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-driver.h - the interface for authors of drivers. A driver moves bytes between memory and a
 * store. A filter is a driver that opens another driver behind it and passes requests on.
 *
 * A driver is one struct ummap_driver. The library opens one handle for each store of a mapping
 * and calls it from many threads. ummap-driver(3) explains the life of a handle, and
 * ummap-driver-calls(3) and ummap-driver-filters(3) specify each call. Rules for every call:
 *
 *  - A call returns 0 or a negative errno value. In addition, submit, reap, map_pagecache and
 *    hand_over may return a positive result, and flush a positive errno value.
 *  - A transfer is complete when the call returns 0. The driver continues after short transfers
 *    and EINTR. Bytes beyond the end of the store read as zeros.
 *  - `write` means that the store has accepted the bytes. `flush` means that they are durable.
 *  - A call never calls the library, never throws an exception, and accesses no mapping except
 *    the buffer that it was given. If the handle has UMMAP_CAP_FAULTSAFE, the call uses only
 *    async-signal-safe functions.
 *  - The library never lets pthread_cancel(3) interrupt a call.
 */
#ifndef UMMAP_DRIVER_H
#define UMMAP_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMMAP_DRIVER_ABI 2

#define UMMAP_WHY_BYTES 400 /* room for the message of a driver, its final zero included */

/* Capabilities of a handle, in ummap_geom.caps. */
#define UMMAP_CAP_WRITE 1u      /* `write` works */
#define UMMAP_CAP_GROW 2u       /* a write beyond the end makes the store longer */
#define UMMAP_CAP_PARALLEL 4u   /* threads may use the handle concurrently; else one at a time */
#define UMMAP_CAP_FAULTSAFE 8u  /* read, write and flush may run inside a signal handler */
#define UMMAP_CAP_ASYNC 16u     /* submit and reap are implemented and faster than read and write */
#define UMMAP_CAP_DIRECT 32u    /* transfers bypass the page cache where they can */
#define UMMAP_CAP_PAGECACHE 64u /* map_pagecache is implemented, and the user wants it */
#define UMMAP_CAP_REMOTE 128u   /* requests wait long for a network, and many at a time are fast */

/* Flags of open and open_fd (argument oflags). */
#define UMMAP_O_WRITE 1   /* the mapping is writable */
#define UMMAP_O_CREATE 2  /* create the store if it does not exist */
#define UMMAP_O_WRITERS 4 /* other handles write to the same blocks: a write must change only its
			     own bytes, or open fails with EINVAL */
#define UMMAP_O_LOGGED 8  /* the caller is a filter that has the store's log: the driver must not
			     refuse the store because of commits in the log */
#define UMMAP_O_OVERLAID 16 /* the caller is a filter that keeps changes of the store: a driver that
			       can return to an earlier state (wal+, key wal.commit) must refuse to
			       do so with EINVAL */

struct ummap_driver;

/* One key of a URI, without the prefix "scheme." of a filter's key. */
struct ummap_key {
	const char *name;  /* name of the key; the driver's list `keys` has it */
	const char *value; /* decoded value; the driver checks it */
};

/* A parsed URI. "error+posix:/d/a?error.nth=7&direct=never" is the filter error in front of the
 * driver posix. All pointers are valid only during the call that receives the URI. */
struct ummap_uri {
	const char *scheme;               /* name of this driver */
	const char *path;                 /* decoded text between ':' and '?' */
	const struct ummap_key *keys;     /* keys of this driver only */
	unsigned nkeys;                   /* number of keys */
	const struct ummap_driver *next;  /* in a filter: the driver to open; otherwise NULL */
	const struct ummap_uri *next_uri; /* in a filter: the URI for that driver; otherwise NULL */
};

/* Properties of a handle. `open` fills the structure, which is zeroed on entry. */
struct ummap_geom {
	uint64_t size;    /* bytes of the store now */
	uint32_t align;   /* power of two: transfers whose offset, length and address are multiples
			     of it are fast; 1: all transfers are equal */
	uint32_t optimal; /* bytes of an efficient transfer; 0: unknown */
	uint32_t caps;    /* capabilities, UMMAP_CAP_* */
	char why[UMMAP_WHY_BYTES]; /* error message if open fails; warning if it succeeds; "" if
				      there is none */
	uint64_t id[2];   /* identity of the store, equal for all its handles, such as inode and
			     device; id[0] 0: unknown */
};

/* Operations of a request, in ummap_io.op. */
enum { UMMAP_IO_READ = 0, UMMAP_IO_WRITE = 1 };

/* Kinds of lock, the argument `how` of `lock`: none; one that other shared locks may overlap; one
 * that no other lock may overlap. */
enum { UMMAP_LOCK_NONE = 0, UMMAP_LOCK_SHARED = 1, UMMAP_LOCK_EXCLUSIVE = 2 };

/* One asynchronous request. */
struct ummap_io {
	uint8_t op;    /* operation: UMMAP_IO_READ or UMMAP_IO_WRITE */
	uint8_t flags; /* always 0 */
	void *buf;     /* memory to fill or to write from */
	size_t len;    /* bytes */
	uint64_t off;  /* offset in the store, in bytes */
	int res;       /* result that the driver stores: 0 or a negative errno value */
	void *owner;   /* pointer of the library, which the driver does not use */
};

/* Steps of handing a store over to another handle, in ummap_handover.how. */
enum {
	UMMAP_HANDOVER_CANCEL = 0, /* the other handle is not used: work as before */
	UMMAP_HANDOVER_KEEP = 1,   /* prepare: the other handle must show all flushed contents */
	UMMAP_HANDOVER_SWITCH = 2, /* prepare: writes since the last flush need not be kept */
	UMMAP_HANDOVER_FINISH = 3  /* copy to the other handle the contents that it lacks */
};

/* Argument of `hand_over`. */
struct ummap_handover {
	int how;                           /* step: UMMAP_HANDOVER_* */
	const struct ummap_uri *to;        /* URI of the other handle; NULL with CANCEL */
	const struct ummap_driver *driver; /* FINISH: outermost driver of the other handle */
	void *h;                           /* FINISH: the other handle */
	char why[UMMAP_WHY_BYTES];         /* result: an error message, or "" */
};

/* Function that receives a notice of a driver; see set_notice below. */
typedef void (ummap_notice)(void *arg, const char *message);

/* Table of a driver. Only open, close and read are required. NULL in any other member means that
 * the driver does not have the call; its comment says how the library does without. */
struct ummap_driver {
	size_t struct_size; /* sizeof(struct ummap_driver); releases only append members */
	uint32_t abi;       /* UMMAP_DRIVER_ABI */
	const char *scheme; /* name in URIs, such as "posix": lower-case letters, digits, '-' */
	const char *keys;   /* names of its URI keys, separated by blanks; NULL: none */
	const char *help;   /* description in one line; NULL: none */

	/* Opens the store that uri names. On success, *h is a new handle and *geom describes it.
	 * The call must not change an existing store. */
	int (*open)(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom);
	/* Opens the store behind a descriptor, which the caller keeps. uri has no path but may have
	 * keys. NULL: the driver does not take descriptors. */
	int (*open_fd)(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom);
	/* Ends a handle, without making anything durable. Also called in a forked child, for the
	 * handles of its parent. */
	int (*close)(void *h);
	/* Fills buf with len bytes of the store from offset off on. */
	int (*read)(void *h, void *buf, size_t len, uint64_t off);
	/* Writes len bytes to the store at offset off. NULL: the store is read-only. */
	int (*write)(void *h, const void *buf, size_t len, uint64_t off);
	/* Makes all earlier writes to [off, off + len) durable. A negative errno value means that
	 * data written since the last successful flush may be lost. A positive errno value means
	 * that nothing is lost and that the next flush tries again. NULL: a write is durable when
	 * it returns. */
	int (*flush)(void *h, uint64_t off, uint64_t len);
	/* Sets the length of the store. NULL: the store cannot be lengthened in advance. */
	int (*resize)(void *h, uint64_t size);

	/* Asynchronous transfers (UMMAP_CAP_ASYNC). submit starts up to n requests and returns how
	 * many; 0: the driver accepts no more now. reap waits for at least min requests, and
	 * returns up to max finished ones. Until then, requests and buffers belong to the driver.
	 * A thread reaps all requests that it has submitted, and no others. */
	int (*submit)(void *h, struct ummap_io **io, unsigned n);
	int (*reap)(void *h, struct ummap_io **done, unsigned max, unsigned min);

	/* Mappings in place, for persistent memory: maps pages of the store at addr, so that the
	 * mapping needs no segments and no faults. NULL: the mapping has segments. */
	int (*map)(void *h, void *addr, size_t len, uint64_t off, int prot);
	/* Makes the bytes durable that the program has stored to memory that `map` has mapped.
	 * NULL: the library calls flush. */
	int (*persist)(void *h, void *addr, size_t len);

	/* Transfers between n pieces of memory and consecutive bytes of the store. NULL: the
	 * library calls read or write for each piece. */
	int (*readv)(void *h, const struct iovec *iov, int n, uint64_t off);
	int (*writev)(void *h, const struct iovec *iov, int n, uint64_t off);
	/* Stores the current size in *size, in bytes, if the size can change while the handle is
	 * open. Called at any time, also during transfers and inside a signal handler. NULL: the
	 * size is that at opening, or the end of the farthest write. */
	int (*size)(void *h, uint64_t *size);
	/* Kind of driver. 1: a filter, which opens uri->next. 0: any other driver. */
	uint32_t filter;
	/* Page-cache mappings (UMMAP_CAP_PAGECACHE): maps whole pages of the store read-only at
	 * addr, in place of the pages mapped there, if the kernel's page cache has all of them.
	 * addr NULL: maps nothing, and only checks the page cache. Returns 1 on success; 0 if the
	 * page cache lacks a page; or a negative errno value. Unless it returns 1, it changes
	 * nothing. */
	int (*map_pagecache)(void *h, void *addr, size_t len, uint64_t off);
	/* Sets or removes a lock of the bytes [off, off + len), without waiting; how: UMMAP_LOCK_*.
	 * The lock replaces the locks that the handle has in the range. Locks end with the handle,
	 * but not when a forked child closes it. Locks detect other writers; they block no
	 * transfers. Returns -EBUSY if another handle has a conflicting lock, and stores the name
	 * of the owner in why, such as "process 17 (solver)"; "" means that the owner is unknown.
	 * Another negative errno value: this store supports no locks. NULL: the store has no other
	 * writers, or the driver cannot detect them. */
	int (*lock)(void *h, uint64_t off, uint64_t len, int how, char why[160]);
	/* Numbered flushes (commits): stores the oldest and the newest commit number at which the
	 * store can be opened. Each successful flush adds one to the newest number, also if nothing
	 * was written; the library flushes at each sync. NULL, or -EOPNOTSUPP: the store has no
	 * commits. */
	int (*commits)(void *h, uint64_t *oldest, uint64_t *newest);
	/* Called instead of flush when no sync was requested, such as by the background thread. The
	 * written data may become durable only with the next flush. NULL, or -EOPNOTSUPP: the
	 * library calls flush. */
	int (*push)(void *h);
	/* Sets the function that receives notices. A notice is an error message about a condition
	 * that no call reports because the driver works around it, such as one store that fails
	 * while another one takes its place. The driver gives it once, when the condition begins.
	 * The library calls set_notice after open; the last call counts. From then until close
	 * returns, any thread of the driver and any call on the handle may call
	 * notice(arg, message), which copies the message and does not wait. A filter passes the
	 * call on. NULL: the driver gives no notices. */
	void (*set_notice)(void *h, ummap_notice *notice, void *arg);
	/* Finds data in a sparse store: *begin is the first byte at or after off that may be
	 * nonzero, or UINT64_MAX if there is none: all bytes from off to *begin are zeros. The
	 * answer must take into account all data that any handle or process has written before the
	 * call. The library does not ask again about [*begin, *end).
	 * Called at any time, also during transfers and inside a signal handler; the call must not
	 * wait for storage as a read does. NULL, or a negative errno value: any byte may be
	 * nonzero, and the library does not ask this handle again. */
	int (*data)(void *h, uint64_t off, uint64_t *begin, uint64_t *end);
	/* Hands the store over to another handle, which the same thread opens next by another URI:
	 * with another driver, other filters or other keys. The first step is KEEP or SWITCH. After
	 * it, the handle must change nothing, keep all its locks and serve reads, and all flushed
	 * contents must be where the other handle's drivers look for them. A lock of this handle
	 * must not conflict with those of a handle that the same thread opens before CANCEL or
	 * close. FINISH follows KEEP only if the two handles have different ids. It returns 1 if
	 * the other handle now shows the same contents, and 0 if it does not; then the library
	 * copies them. After CANCEL the handle must work as before. close after KEEP or SWITCH must
	 * leave the store to the other handle. A filter must pass the call on. NULL: there is
	 * nothing to do. */
	int (*hand_over)(void *h, struct ummap_handover *to);
	/* Stores the identity that the next handle of the store would have in geom->id, if writes
	 * of this handle change it. NULL: they do not. */
	int (*identity)(void *h, uint64_t id[2]);
};

/* Table that the file ummap-driver-SCHEME.so exports. */
#pragma GCC visibility push(default)
extern const struct ummap_driver ummap_driver;

/*
 * Opens the store that a URI names, as the library does, without a mapping. The call is for
 * programs that test a driver or map its handle; drivers must not make it. The caller sets
 * driver->struct_size. On success, *driver is a copy of the outermost driver's table, in which
 * calls that the driver lacks are NULL; *h is the handle, which driver->close(*h) ends; and *geom
 * describes the handle. Returns 0, or -1 with errno set; umerrormsg() of ummap.h returns the error
 * message.
 */
int ummap_driver_open(const char *uri, int oflags, struct ummap_driver *driver, void **h,
		      struct ummap_geom *geom);

/*
 * Opens filters in front of a store of another driver, which need not be registered.
 *
 * filters   URI of the filters, without a path: "cache:?cache.path=/d/a", "error+cache:?..."
 * next      driver behind the last filter; the table must remain valid while the handle is open
 * next_uri  argument of next->open; its path is the path of the filters, too. It may be the first
 *           member of a larger structure, by which next->open receives more than text
 *
 * The other arguments and the result are those of ummap_driver_open.
 */
int ummap_driver_open_filters(const char *filters, const struct ummap_driver *next,
			      const struct ummap_uri *next_uri, int oflags,
			      struct ummap_driver *driver, void **h, struct ummap_geom *geom);

struct ummap_attr;

/*
 * Maps the bytes [offset, offset + size) of a store that the caller has opened, by
 * ummap_driver_open or otherwise.
 *
 * driver  table of the handle's driver, which is copied; it needs no `open`
 * h       handle. If the call succeeds, it belongs to the mapping, and driver->close(h) is called
 *         when the mapping ends. If the call fails, it remains open and belongs to the caller
 * geom    description of the handle, as driver->open has filled it in
 *
 * The other arguments and the errors are those of ummap_open. UMMAP_CREATE only lengthens the
 * store. With UMMAP_WRITERS, the handle must have been opened with UMMAP_O_WRITERS.
 */
int ummap_open_handle(const struct ummap_driver *driver, void *h, const struct ummap_geom *geom,
		      size_t size, off_t offset, int prot, const struct ummap_attr *attr,
		      void **addr);

/*
 * Registers a driver that is part of a program or library: from now on, URIs in this process may
 * name its scheme. The call copies *driver. Returns 0, or -1 with errno set: EINVAL (the table or
 * the scheme is not valid), EEXIST (a driver with this scheme exists).
 */
int ummap_driver_register(const struct ummap_driver *driver);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
