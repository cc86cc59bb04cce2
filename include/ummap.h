/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap.h - memory-mapped I/O that a program controls itself.
 *
 * A mapping is a range of addresses backed by a range of a store (a file, a block device, ...). It is
 * moved between memory and the store in segments, on plain loads and stores; at most the process's
 * budget of bytes is held in memory at a time. See ummap(7).
 *
 * All calls return 0, or -1 with errno set (umerrormsg() has the sentence), unless said otherwise. All
 * may be called by any thread, and a mapping may be used by any number of threads at once.
 */
#ifndef UMMAP_H
#define UMMAP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define UMMAP_VERSION_MAJOR 0
#define UMMAP_VERSION_MINOR 1
#define UMMAP_VERSION_PATCH 0

/*
 * Replacement policies: which resident segment is evicted first (thesis, Section 6.2). Programs
 * written for uMMAP-IO use the numbers 0 to 5; ummap() accepts 0 for UMMAP_PTYPE_FIFO.
 */
enum {
	UMMAP_PTYPE_DEFAULT = 0, /* in ummap_attr: UMMAP_PTYPE_S3FIFO */
	UMMAP_PTYPE_LIFO = 1,    /* the segment that was loaded last */
	UMMAP_PTYPE_PLRU = 2,    /* the segment whose last fault is longest ago */
	UMMAP_PTYPE_PRND = 3,    /* a random segment */
	UMMAP_PTYPE_WIRO_F = 4,  /* clean segments before dirty ones, each in the order of FIFO */
	UMMAP_PTYPE_WIRO_L = 5,  /* clean segments before dirty ones, each in the order of LIFO */
	UMMAP_PTYPE_S3FIFO = 6,  /* segments used once before segments used again (S3-FIFO) */
	UMMAP_PTYPE_FIFO = 7     /* the segment that was loaded first */
};

/*
 * Maps bytes [offset, offset + size) of the file or block device fd, which is duplicated and may be closed
 * at once. seg_size: a power of two of at least the page, 0 for the default. prot: PROT_READ, or
 * PROT_READ | PROT_WRITE. flush_interval: seconds until a change is written by itself, negative for never.
 * read_file 0: what this mapping has not written reads as zeros. ptype: UMMAP_PTYPE_*. *addr: the base.
 * Errors: EINVAL, EBADF, EACCES, ENODEV, EOVERFLOW, ENOMEM. (Thesis, Section 6.1.2.)
 */
int ummap(size_t size, size_t seg_size, int prot, int fd, off_t offset,
	  int flush_interval, int read_file, int ptype, void **addr);

/*
 * Writes all that changed in the mapping at addr since the last sync and makes it durable; with evict != 0
 * then lets go of its memory. Errors: EINVAL (no mapping starts at addr), or the store's error: this call's,
 * or one of an earlier write in the background, reported once; EIO each time after a flush that failed for what
 * has left memory. (Thesis, Section 6.1.2.)
 */
int umsync(void *addr, int evict);

#define UMMAP_SYNC 1   /* umremap: first sync to the old store */
#define UMMAP_SWITCH 2 /* umremap: show the new store's contents instead of carrying the old ones over */

/*
 * Points a mapping at another file, offset and/or size (0, -1 and -1: as before). Contents are carried and
 * count as changed; the next umsync completes the new store. sync: UMMAP_SYNC | UMMAP_SWITCH, or 0.
 * *new_addr: in, NULL or the old address; out, the base, which moves only if growing in place fails.
 * Errors: as ummap; EBUSY (a part is pinned); EACCES (a read-only mapping cannot carry). The mapping stays as it
 * was after a failure (but may have shrunk already where its new place overlaps the old one). (Thesis, Section 6.1.2.)
 */
int umremap(void *old_addr, size_t size, int fd, off_t offset, int sync, void **new_addr);

/*
 * Ends a mapping. sync != 0: makes all changes durable first; if that fails, -1 and the mapping
 * stands, but for EUCLEAN: it has ended, and what the store did not take is kept beside it;
 * umerrormsg has what completes it.
 * sync UMMAP_NOFLUSH: writes all changes, but does not wait until they are durable.
 * sync 0: drops what was not written yet. Errors: EINVAL, or the store's. (Thesis, Section 6.1.2.)
 */
int umunmap(void *addr, int sync);

/* ---- Additions to the thesis's four calls. ---- */

/*
 * As umunmap, for a mapping that other threads may go on using: what is mapped at `pages` (mmap(2), as many pages as the
 * mapping has) moves to its addresses with no moment between; accesses wait meanwhile. Errors: as umunmap; EBUSY (a part is
 * pinned); EINVAL (no pages). ENOMEM, if its sentence says so: the mapping has ended, and the pages have not moved.
 */
int umunmap_onto(void *addr, int sync, void *pages);

#define UMMAP_CREATE 1u /* ummap_attr.flags: create the store if it is not there, as long as the mapping needs it */
#define UMMAP_KERNEL 2u /* ... system calls and other processes may touch what is absent; Linux 6.8 (see ummap(7)) */
#define UMMAP_SHARED 4u /* ... other processes of the machine may reach what is in memory (umexport); engine segv only */
#define UMMAP_BLANK 8u  /* ... what this mapping has not written reads as zeros, whatever the store holds */
#define UMMAP_WRITERS 16u /* ... others write to the same bytes, too, and say so: only bytes that were stored are written */
#define UMMAP_GROWS 32u /* ... with UMMAP_CREATE: no longer than what is written, with which it grows */

/* How accesses to absent segments are noticed: ummap_attr.engine. */
enum {
	UMMAP_ENGINE_DEFAULT = 0, /* as UMMAP_ENGINE says */
	UMMAP_ENGINE_AUTO = 1,    /* sigbus for small segments, uffd for UMMAP_KERNEL, else segv */
	UMMAP_ENGINE_SEGV = 2,    /* by SIGSEGV: accesses of the process's own instructions only */
	UMMAP_ENGINE_UFFD = 3,    /* by userfaultfd(2): also those of the kernel and of other processes; Linux 6.8 */
	UMMAP_ENGINE_SIGBUS = 4   /* by userfaultfd(2) and SIGBUS: as segv, for small segments */
};

/*
 * Values of ummap_attr.on_full: the effect of a store to a mapping whose writes fail, for example
 * because its file system is full, when the memory for changes is used up (UMMAP_OVER_BUDGET, see
 * ummap(7)).
 */
enum {
	UMMAP_FULL_DEFAULT = 0, /* the value of UMMAP_ON_FULL */
	UMMAP_FULL_WAIT = 1,    /* the thread waits until a write succeeds */
	UMMAP_FULL_SIGBUS = 2   /* the thread gets SIGBUS */
};

/* How ummap_open maps. Zeros are the defaults of all fields but the first; UMMAP_ATTR_INIT sets that. */
struct ummap_attr {
	size_t struct_size;   /* sizeof(struct ummap_attr) */
	size_t seg_size;      /* bytes, as for ummap; 0: the default */
	int flush_interval;   /* seconds until a change is written by itself; 0: never */
	int ptype;            /* UMMAP_PTYPE_*, used if policy is NULL */
	unsigned flags;       /* UMMAP_CREATE, UMMAP_KERNEL, UMMAP_SHARED, UMMAP_BLANK, UMMAP_WRITERS, UMMAP_GROWS */
	const char *policy;   /* a policy by name, "fifo" or "prnd:seed=7"; NULL: ptype */
	size_t budget;        /* bytes that this mapping may hold, inside the process's; 0: no bound of its own */
	const char *group;    /* mappings that share policy and budget, by a name of at most 31 letters, digits,
				 '-', '_', '.'; NULL: none. The first one makes the group with its policy and
				 budget; others name none (UMMAP_PTYPE_DEFAULT), or the same */
	int engine;           /* UMMAP_ENGINE_* */
	size_t before, after; /* bytes of addresses right before the mapping and right behind its last page, multiples of
				 the page's size, that the caller maps what it likes to (MAP_FIXED), and unmaps */
	int on_full;          /* UMMAP_FULL_* */
};

#define UMMAP_ATTR_INIT { sizeof(struct ummap_attr), 0, 0, UMMAP_PTYPE_DEFAULT, 0, NULL, 0, NULL, \
			  UMMAP_ENGINE_DEFAULT, 0, 0, UMMAP_FULL_DEFAULT }

/*
 * As ummap, for any driver: "posix:/data/a", "posix:/data/a.{rank}?direct=never". attr NULL: the defaults.
 * Errors: as ummap; EINVAL (URI, attributes), ENOENT and whatever opening the store gives; EPERM, ENOSYS, EOPNOTSUPP
 * (the engine cannot be used, or not for UMMAP_KERNEL or UMMAP_SHARED).
 */
int ummap_open(const char *uri, size_t size, off_t offset, int prot,
	       const struct ummap_attr *attr, void **addr);

/*
 * As umremap, to the store of a URI, which is made if contents are to migrate and it is not there; uri NULL: the same store
 * as before. Errors: as umremap, and as ummap_open for the URI.
 */
int umremap_open(void *old_addr, const char *uri, size_t size, off_t offset, int sync, void **new_addr);

/*
 * Gives the variable {name} of URIs a value, which is copied; value NULL: takes it away. {rank}, {pid} and
 * {host} are there by themselves and cannot be set. A name is letters, digits and '_'.
 * Errors: EINVAL (name, or a value of more than 4095 bytes), ENOMEM.
 */
int ummap_setvar(const char *name, const char *value);

#define UMMAP_ASYNC 1   /* start, do not wait */
#define UMMAP_EVICT 2   /* then let go of the memory */
#define UMMAP_NOFLUSH 4 /* written, not made durable */

/*
 * umsync for the segments that [addr, addr + len) touches; addr may be any byte of a mapping. flags: the
 * three above. Errors: as umsync; ENOMEM (the range leaves the mapping).
 */
int umsync_range(void *addr, size_t len, int flags);

/*
 * For a store that counts its syncs (the filter wal+): the oldest and the newest of the moments that it can be opened at. addr
 * may be any byte of a mapping. Each umsync that returns 0 ends one more. EOPNOTSUPP: the store has none.
 */
int umcommits(const void *addr, uint64_t *oldest, uint64_t *newest);

enum {
	UMMAP_ADV_NORMAL = 0,     /* read ahead where runs are found */
	UMMAP_ADV_RANDOM = 1,     /* no read-ahead */
	UMMAP_ADV_SEQUENTIAL = 2, /* read ahead from the first fault, drop what lies behind */
	UMMAP_ADV_WILLNEED = 3,   /* load the range in the background */
	UMMAP_ADV_DONTNEED = 4,   /* write the range's changes, then let go of its memory */
	UMMAP_ADV_DISCARD = 5     /* nobody needs what the range holds: it is not written, and reads as zeros */
};

/*
 * Says how [addr, addr + len) will be used. NORMAL, RANDOM and SEQUENTIAL hold for the whole mapping from
 * then on; WILLNEED and DONTNEED act on the range's segments, DISCARD on those that lie in it as a whole, of a mapping
 * with UMMAP_BLANK. Errors: EINVAL, ENOMEM as umsync_range; EINVAL (DISCARD: not UMMAP_BLANK), EBUSY (DISCARD: a part is pinned).
 */
int umadvise(void *addr, size_t len, int advice);

/*
 * Says that the n ranges are going to be used, all of one mapping: their segments are loaded in the background, together,
 * and the call does not wait. They may be in any order, many and small, and overlap; what is in memory costs nothing.
 * What comes first in the list is loaded first of all, as far as the budget has room; the rest is ignored. Errors, of
 * which nothing is loaded: EINVAL (n, a length of 0, the first range is in no mapping), ENOMEM (a range is not in the
 * mapping of the first one; no memory for the list).
 */
int umprefetch(const struct iovec *ranges, int n);

/*
 * Brings [addr, addr + len) in and keeps it there while a system call, MPI or a device works on it;
 * prot PROT_READ | PROT_WRITE: writable, and counted as changed until unpinned. Pins nest, and count against
 * the budget in sum.
 * Errors: EINVAL, EACCES (read-only mapping), ENOMEM (outside, or more than the budget), EAGAIN (too many
 * pins on one segment), or the store's.
 */
int umpin(void *addr, size_t len, int prot);
int umunpin(void *addr, size_t len);

/* Counters since the mapping began (umstat(addr)) or the process did (umstat(NULL)). */
struct umstat {
	uint64_t struct_size;     /* in: sizeof(struct umstat) */
	uint64_t read_faults;     /* loads of absent segments, with those that came in beside them (readahead_hits) */
	uint64_t write_faults;    /* stores to absent segments */
	uint64_t upgrade_faults;  /* first stores to present, unchanged segments */
	uint64_t spurious_faults; /* another thread was faster */
	uint64_t inactive_hits;    /* of the first two: found inactive, without I/O */
	uint64_t readahead_hits;      /* of the first two: served by read-ahead, which may bring in several at a time */
	uint64_t readahead_waste;     /* segments read ahead and let go unused */
	uint64_t readahead_loads;     /* segments read ahead */
	uint64_t evictions;       /* segments unmapped */
	uint64_t read_bytes;      /* from storage */
	uint64_t read_requests;
	uint64_t write_bytes;     /* to storage */
	uint64_t write_requests;
	uint64_t flushes;
	uint64_t read_errors;
	uint64_t write_errors;    /* writes and flushes that failed */
	uint64_t resident_bytes;  /* mapped now */
	uint64_t inactive_bytes;   /* inactive now, read ahead included */
	uint64_t dirty_bytes;     /* now changed and not written */
	uint64_t pinned_bytes;    /* now pinned */
	uint64_t budget_bytes;    /* what may be held: this mapping's own or its group's, or the process's */
	uint64_t held_bytes;      /* process only: memory of all frames, free ones included */
	uint64_t over_budget_peak;/* process only: the most by which held_bytes was over the budget */
	uint64_t mappings;        /* process only: mappings that exist now */
	uint64_t pagecache_bytes; /* bytes of page-cache mappings, which count towards the budget */
	uint64_t lost_bytes;      /* written, gone from memory, and then a flush failed: no sync succeeds any more */
	uint64_t engine;          /* mapping only: what serves its faults (UMMAP_ENGINE_SEGV, _UFFD, _SIGBUS); 0: it has none, in place */
	uint64_t kernel;          /* mapping only: 1: system calls may touch what is absent (UMMAP_KERNEL); 0: they fail with EFAULT */
	uint64_t waiting_bytes;   /* dirty bytes of mappings whose last write failed (no space, ...) */
};

/* Fills *st for the mapping that holds addr, or for the process. Errors: EINVAL. */
int umstat(const void *addr, struct umstat *st);

/*
 * fn is told of each load that storage failed: the address touched and the errno, on the faulting thread,
 * inside its SIGSEGV handler, just before it gets SIGBUS; not of those for system calls. NULL: nobody. Returns 0.
 */
int umonerror(void (*fn)(void *addr, int error));

/* What another process of this machine needs to reach a mapping: plain bytes, to be sent by any means. */
struct umexport {
	uint64_t word[8];
};

/*
 * Fills an offer of the mapping that begins at addr, which was opened with UMMAP_SHARED. It holds until the mapping
 * ends. Errors: EINVAL, EOPNOTSUPP (not UMMAP_SHARED).
 */
int umexport(void *addr, struct umexport *offer);

/* A mapping of another process, or of one's own, and what of it is in memory. */
struct umimport;

/*
 * Opens what was offered. The peer is this process's own: in a forked child nothing is there. Errors: EINVAL (no
 * offer), EXDEV (of another machine or container), ESRCH (the owner has ended), ESTALE (the mapping has), EACCES,
 * EPERM (the owner's memory may not be opened), EAGAIN (1023 peers of it are open), ENOMEM.
 */
int umimport_open(const struct umexport *offer, struct umimport **peer);

/*
 * Copies bytes [offset, offset + len) of the mapping, or to them, and returns how many, from the front: fewer, perhaps
 * 0, where a segment is not in memory just now, or is being loaded, written or moved; and for put, where the owner
 * has no changes of it left to write. Neither waits for storage, or makes the owner do anything. No errors.
 */
size_t umimport_get(struct umimport *peer, void *buf, size_t len, uint64_t offset);
size_t umimport_put(struct umimport *peer, const void *buf, size_t len, uint64_t offset);

/* What is held of a peer's mapping. */
struct umhold {
	char *addr;              /* where the bytes from the offset on are, in this process */
	size_t len;              /* ... to the end of their segment */
	void *slot;              /* the library's */
};

/*
 * Gives the bytes from offset on in place, to be loaded from, or stored to as well: for what a copy cannot do, such as
 * atomic instructions. Until umimport_release the owner neither writes nor evicts them, and waits where it has to: so a
 * hold lasts for microseconds, one thread has one, and meanwhile it touches no mapping (ummapped), waits for nothing, and is
 * not stopped. Where it succeeds, it is a full barrier to memory. -1: as when a get or put copies nothing. No other errors.
 */
int umimport_hold(struct umimport *peer, uint64_t offset, int store, struct umhold *hold);
void umimport_release(struct umhold *hold);

/* Whether a byte of [addr, addr + len) is in a mapping of this process: 1 or 0. */
int ummapped(const void *addr, size_t len);

/* No thread uses the peer any more. NULL: nothing happens. */
void umimport_close(struct umimport *peer);

/* The sentence behind the -1 that this thread's last call here gave; "" after a success, never NULL. */
const char *umerrormsg(void);

/*
 * For a SIGSEGV handler of the application's own that wants to chain: returns 1 if the fault was the
 * library's and is served (return from the handler then), 0 if not. The arguments are those of an SA_SIGINFO handler.
 */
int umfault(int sig, void *info, void *context);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
