/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-driver.h - for authors of drivers: the code that moves bytes between memory and a store.
 *
 * A driver is one struct ummap_driver. The library opens a handle per mapped store and calls it from
 * many threads; see ummap-driver(3) for the lifecycle. Rules for every call:
 *
 *  - It returns 0, or a negative errno (submit and reap: a count, or a negative errno).
 *  - Transfers are whole: the driver itself retries short transfers and EINTR. Bytes past the end of the
 *    store read as zeros. `write` means accepted, `flush` means durable.
 *  - It never calls the library, never throws, and never touches memory of a mapping other than the buffer
 *    that it was given. A handle with UMMAP_CAP_FAULTSAFE also calls nothing that is not async-signal-safe.
 *  - The library never interrupts a call with thread cancellation.
 */
#ifndef UMMAP_DRIVER_H
#define UMMAP_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMMAP_DRIVER_ABI 2

/* ummap_geom.caps: what a handle can do. */
#define UMMAP_CAP_WRITE 1u     /* write works */
#define UMMAP_CAP_GROW 2u      /* writing past the end makes the store longer */
#define UMMAP_CAP_PARALLEL 4u  /* calls may run at once on one handle; else the library takes turns */
#define UMMAP_CAP_FAULTSAFE 8u /* read, write and flush may run inside a signal handler */
#define UMMAP_CAP_ASYNC 16u    /* submit and reap are there and better than read and write */
#define UMMAP_CAP_DIRECT 32u   /* bypasses the page cache where it can */
#define UMMAP_CAP_PAGECACHE 64u /* map_pagecache is there and wanted */

/* oflags of open and open_fd. */
#define UMMAP_O_WRITE 1   /* the mapping is writable */
#define UMMAP_O_CREATE 2  /* create the store if it is missing */
#define UMMAP_O_LOGGED 8  /* from a filter that has the store's log: commits in it are no reason to refuse the store */
#define UMMAP_O_WRITERS 4 /* others write to the same blocks: a write changes its own bytes and no other, or it is EINVAL */
#define UMMAP_O_OVERLAID 16 /* from a filter that keeps newer contents of the store: its contents must not go back */

struct ummap_driver;

/* One key of a URI, without the "scheme." prefix that keys of a filter carry. */
struct ummap_key {
	const char *name;
	const char *value;
};

/* A parsed URI: "error+posix:/d/a?error.nth=7&direct=never" is error over posix. Valid during open only. */
struct ummap_uri {
	const char *scheme;
	const char *path;                      /* what stands between ':' and '?', percent-decoded */
	const struct ummap_key *keys;          /* this driver's own keys; each is in its `keys` list */
	unsigned nkeys;
	const struct ummap_driver *next;       /* for a filter: the driver that it has to open ... */
	const struct ummap_uri *next_uri;      /* ... and with what. NULL for a driver that is no filter */
};

/* What a handle is like; open fills it. */
struct ummap_geom {
	uint64_t size;     /* bytes of the store now */
	uint32_t align;    /* power of two: transfers aligned to it (offset, length, memory) are fast; 1: any */
	uint32_t optimal;  /* bytes of a good transfer, 0: unknown */
	uint32_t caps;     /* UMMAP_CAP_* */
	char why[160];     /* on failure: a sentence for a person, or ""; on success: a warning, or "" */
	uint64_t id[2];    /* the same for all handles of one store (device and inode, say); id[0] 0: unknown */
};

enum { UMMAP_IO_READ = 0, UMMAP_IO_WRITE = 1 };

/* What `lock` keeps away: nobody any more, those who want the range for themselves, all who write it. */
enum { UMMAP_LOCK_NONE = 0, UMMAP_LOCK_SHARED = 1, UMMAP_LOCK_EXCLUSIVE = 2 };

/* One request. */
struct ummap_io {
	uint8_t op;      /* UMMAP_IO_READ or UMMAP_IO_WRITE */
	uint8_t flags;   /* 0 */
	void *buf;
	size_t len;      /* bytes */
	uint64_t off;    /* in the store */
	int res;         /* out: 0 or a negative errno */
	void *owner;     /* the library's */
};

/* The steps of handing a store over from one handle to another, in ummap_handover.how. */
enum {
	UMMAP_HANDOVER_CANCEL = 0, /* the other handle is not used: work as before */
	UMMAP_HANDOVER_KEEP = 1,   /* prepare: the other handle must show all flushed contents */
	UMMAP_HANDOVER_SWITCH = 2, /* prepare: writes since the last flush need not be kept */
	UMMAP_HANDOVER_FINISH = 3  /* write contents that only this handle has to the other one */
};

/* The argument of `hand_over`. */
struct ummap_handover {
	int how;                    /* step: UMMAP_HANDOVER_* */
	const struct ummap_uri *to; /* URI of the other handle; NULL with CANCEL */
	const struct ummap_driver *driver; /* FINISH: outermost driver of the other handle */
	void *h;                    /* FINISH: the other handle */
	char why[160];              /* result: an error message, or "" */
};

/* Takes a sentence for a person; set_notice, below, says when. */
typedef void (ummap_notice)(void *arg, const char *sentence);

struct ummap_driver {
	size_t struct_size;  /* sizeof(struct ummap_driver): fields are only ever appended */
	uint32_t abi;        /* UMMAP_DRIVER_ABI */
	const char *scheme;  /* "posix": lower-case letters, digits, '-' */
	const char *keys;    /* URI keys that it takes, separated by blanks; NULL: none */
	const char *help;    /* one line */

	/* Opens what uri names. Required, as is close. geom is zeroed on entry. */
	int (*open)(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom);
	/* The same for a descriptor, which the caller keeps; uri has no path. NULL: not for descriptors. */
	int (*open_fd)(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom);
	/* Ends a handle; writes nothing. Also called in a forked child, for handles of its parent. */
	int (*close)(void *h);
	int (*read)(void *h, void *buf, size_t len, uint64_t off);             /* required */
	int (*write)(void *h, const void *buf, size_t len, uint64_t off);      /* NULL: read-only */
	/* Makes durable what was written. -errno: it may have lost what was written since the last good flush; a positive
	 * errno: the driver has all of it still, and the next flush tries again. NULL: durable already. */
	int (*flush)(void *h, uint64_t off, uint64_t len);
	int (*resize)(void *h, uint64_t size);                                 /* NULL: cannot */

	/* Asynchronous transfers (UMMAP_CAP_ASYNC). submit: starts up to n, returns how many; 0: full, reap first.
	 * reap: waits for at least min, returns up to max that are done. Buffers belong to the driver between. A
	 * thread reaps what it has submitted itself, and all of it; with PARALLEL several may do so at once. */
	int (*submit)(void *h, struct ummap_io **io, unsigned n);
	int (*reap)(void *h, struct ummap_io **done, unsigned max, unsigned min);

	/* In place: puts the store's own pages at addr, no segments, no faults (persistent memory). */
	int (*map)(void *h, void *addr, size_t len, uint64_t off, int prot);
	int (*persist)(void *h, void *addr, size_t len);

	/* Neighbouring pieces in one request. NULL: the library calls read or write for each. */
	int (*readv)(void *h, const struct iovec *iov, int n, uint64_t off);
	int (*writev)(void *h, const struct iovec *iov, int n, uint64_t off);
	/* Bytes of the store now, where that can change while it is open; called at any time, also beside a
	 * transfer and inside a signal handler. NULL: as opened, or as written. */
	int (*size)(void *h, uint64_t *size);
	/* 1: a filter: it opens uri->next, and cannot do without. */
	uint32_t filter;
	/* Page-cache mappings (UMMAP_CAP_PAGECACHE): if the page cache has all of these whole pages
	 * of the store, maps them read-only at addr, in place of the present mapping. addr NULL:
	 * maps nothing. Returns 1; 0: the page cache lacks some pages, and nothing was changed; or
	 * a negative errno, and nothing was changed. */
	int (*map_pagecache)(void *h, void *addr, size_t len, uint64_t off);
	/* Locks of ranges, by which those who write a store find out about one another; how: UMMAP_LOCK_*. It does not wait.
	 * What the handle has of the range already is replaced, and all that it has ends with it, but not when a forked
	 * child closes it. -EBUSY: somebody else has a lock that does not go with this one, and who goes to why, as the
	 * subject of a sentence, or "". Another negative errno: there are no locks where this store is. NULL: nobody else can
	 * write such a store, or nobody can tell. */
	int (*lock)(void *h, uint64_t off, uint64_t len, int how, char why[160]);
	/* Flushes whose moments can be gone back to: the oldest that still can be, and the newest. Their numbers go up by one with
	 * each flush, and the library makes one at each sync, whether anything was written or not. NULL, or -EOPNOTSUPP: it
	 * has none. */
	int (*epoch)(void *h, uint64_t *oldest, uint64_t *newest);
	/* In place of flush where the library makes durable in the background what was written so far, and no sync asks for it:
	 * nobody counts on it before the next flush. NULL, or -EOPNOTSUPP: it is to be flushed. */
	int (*push)(void *h);
	/* Says where notices go. A notice is a sentence about what no call reports because the driver makes up for it (a store
	 * that fails while another one takes its place): once when it begins, not for each request. From this call to the end of
	 * close, any thread of the driver's or in a call may call notice(arg, sentence), which copies the sentence and does not
	 * wait. The library calls it after open; the last call counts. A filter passes it on. NULL: there are no notices. */
	void (*set_notice)(void *h, ummap_notice *notice, void *arg);
	/* Where the store has data: the first byte at or behind off that may be other than zero is at *begin, and [*begin, *end)
	 * need not be asked about again. All bytes between off and *begin are zeros, whoever wrote the store before the call.
	 * None: *begin is UINT64_MAX. Called at any time, also beside a transfer and inside a signal handler, and does not
	 * wait for storage as a read does. NULL, or a negative errno: there may be data anywhere, from now on. */
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
};

/* What the file ummap-driver-SCHEME.so of a driver exports. */
#pragma GCC visibility push(default)
extern const struct ummap_driver ummap_driver;

/*
 * For programs that test a driver by itself; drivers do not call it. Opens what a URI names as the library
 * does, filters and all, and hands out what came of it. In: driver->struct_size. Out: *driver, a copy of the
 * outermost driver's table, with NULL for calls that it lacks; *h, which ends by driver->close(*h); *geom.
 * Returns 0, or -1 with errno set (umerrormsg() of ummap.h has the sentence).
 */
int ummap_driver_open(const char *uri, int oflags, struct ummap_driver *driver, void **h,
		      struct ummap_geom *geom);

/*
 * For programs and libraries that have a driver in themselves, not in a file of its own: URIs may name its scheme from
 * now on, in this process. *driver is copied. Returns 0, or -1 with errno set: EINVAL (the table, the scheme), EEXIST
 * (there is a driver of that scheme), ENOMEM.
 */
int ummap_driver_register(const struct ummap_driver *driver);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
