/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap.h - memory-mapped I/O under the program's control.
 *
 * A mapping is a range of addresses that is backed by a range of bytes of a store: a file, a block
 * device, or anything else that a driver can open. The program accesses a mapping by load and store
 * instructions. The library transfers the contents between memory and the store in units of one
 * segment, and keeps at most as many bytes in memory as the budget of the process.
 * ummap-concepts(7) explains these terms.
 *
 * Unless a comment says otherwise, a call returns 0 on success. On failure it returns -1 and sets
 * errno, and umerrormsg() returns a message. Any thread may make any call, and any number of
 * threads may use a mapping at the same time. Sizes, lengths and offsets are in bytes.
 *
 * "Thesis" is S. Rivas-Gomez, KTH, 2019; its Chapter 6 describes uMMAP-IO.
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

/* Version of the library that this header belongs to. */
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

/* A segment size: segments are pages, and the library finds from the accesses of the program how
 * many of them a fault loads together, up to 2 MiB. With engines other than sigbus, segments have
 * 2 MiB. See ummap-concepts(7). */
#define UMMAP_SEG_AUTO ((size_t)1)

/*
 * Maps the bytes [offset, offset + size) of a file or block device. The library duplicates fd, so
 * the caller may close it after the call. (Thesis, Section 6.1.2.)
 *
 * size            length of the mapping, greater than 0; it may reach beyond the end of the file
 * seg_size        bytes of a segment: a power of two and at least a page; or UMMAP_SEG_AUTO; 0:
 *                 the value of UMMAP_SEG_SIZE; if that is not set, UMMAP_SEG_AUTO, or 2 MiB where
 *                 stores to single pages would be slow (ummap-concepts(7))
 * prot            PROT_READ or PROT_READ | PROT_WRITE
 * offset          first byte of the file; it needs no alignment
 * flush_interval  seconds after which a dirty segment is written and made durable in the
 *                 background; 0 counts as 1; a negative value means never
 * read_file       0: a segment that this mapping has not written reads as zeros; after a store of
 *                 one byte, the whole segment is written, with zeros in place of the old contents.
 *                 Other values: segments are read from the file
 * ptype           replacement policy, UMMAP_PTYPE_*
 * addr            result: address of the mapping's first byte
 *
 * Errors: EACCES, EAGAIN, EBADF, EBUSY (another mapping writes the same bytes), EINVAL, ENODEV,
 * ENOMEM, EOVERFLOW; EPERM, ENOSYS and EOPNOTSUPP if the engine cannot be used here.
 */
int ummap(size_t size, size_t seg_size, int prot, int fd, off_t offset,
	  int flush_interval, int read_file, int ptype, void **addr);

/*
 * Writes all changes of the mapping that begins at addr, and makes them durable. When it returns 0,
 * everything stored before the call is durable. If evict is not 0, all segments are then evicted.
 * (Thesis, Section 6.1.2.)
 *
 * Errors: EINVAL (no mapping begins at addr); an error of the storage. If a write in the background
 * failed before the call, the next umsync returns the error, once. Changes that could not be
 * written stay in memory. If a flush fails after segments that it had to make durable were evicted,
 * each later call fails with EIO; see umsync(3).
 */
int umsync(void *addr, int evict);

#define UMMAP_SYNC 1   /* umremap: sync the mapping to the old store first */
#define UMMAP_SWITCH 2 /* umremap: show the contents of the new store, and migrate nothing */

/*
 * Changes the file, the offset or the size of the mapping that begins at old_addr. Without
 * UMMAP_SWITCH, the contents migrate: the program sees the same contents as before, and the next
 * umsync writes all of them to the new store. (Thesis, Section 6.1.2.)
 *
 * size      new length; 0: unchanged
 * fd        new file, which is duplicated; -1: unchanged
 * offset    new offset; -1: unchanged
 * sync      0, or any of UMMAP_SYNC and UMMAP_SWITCH
 * new_addr  in: *new_addr is NULL or old_addr; result: address of the mapping, which changes only
 *           if the mapping grows and the addresses behind it are in use
 *
 * Errors: as for ummap; EBUSY (a part is pinned); EACCES (the contents of a read-only mapping
 * cannot migrate); an error of the storage. After an error the mapping is unchanged, with two
 * exceptions if the old and the new range of bytes overlap in one file; see umremap(3).
 */
int umremap(void *old_addr, size_t size, int fd, off_t offset, int sync, void **new_addr);

/*
 * Ends the mapping that begins at addr. (Thesis, Section 6.1.2.)
 *
 * sync  0: changes that are not written yet are dropped. UMMAP_NOFLUSH: all changes are written,
 *       but not made durable. Other values: all changes are made durable.
 *
 * Errors: EINVAL (no mapping begins at addr); EUCLEAN (the mapping has ended, but a filter keeps
 * changes that its store did not accept, and umerrormsg() names the command that completes the
 * store); an error of the storage. The mapping remains after all errors but EUCLEAN.
 */
int umunmap(void *addr, int sync);

/* ---- Calls that the thesis does not have ---- */

/*
 * Ends a mapping that other threads still use, and moves the pages at `pages` to its addresses.
 * There is no moment at which the addresses are empty; accesses by other threads wait meanwhile.
 *
 * pages  page-aligned address of a mapping made by mmap(2) that has as many pages as this mapping
 *
 * Errors: as for umunmap; EBUSY (a part is pinned); EINVAL (pages is NULL or not aligned). If the
 * pages cannot be moved, the mapping has ended, the pages remain where they were, and the message
 * says so.
 */
int umunmap_onto(void *addr, int sync, void *pages);

/* Flags of a mapping: ummap_attr.flags. */
#define UMMAP_CREATE 1u   /* create the store if it is missing; lengthen a file that is too short */
#define UMMAP_KERNEL 2u   /* system calls and other processes may cause faults */
#define UMMAP_SHARED 4u   /* other processes may access resident segments (umexport); engine segv */
#define UMMAP_BLANK 8u    /* segments that this mapping has not written read as zeros */
#define UMMAP_WRITERS 16u /* several mappings write: write only bytes that were stored */
#define UMMAP_GROWS 32u   /* with UMMAP_CREATE: the file grows as segments are written */
#define UMMAP_NODE 64u    /* read-only: processes that map the same bytes share memory */

/* ummap_attr.engine: how the library detects accesses to segments that are not resident. */
enum {
	UMMAP_ENGINE_DEFAULT = 0, /* value of the environment variable UMMAP_ENGINE */
	UMMAP_ENGINE_AUTO = 1,    /* uffd with UMMAP_KERNEL, sigbus for small segments, else segv */
	UMMAP_ENGINE_SEGV = 2,    /* SIGSEGV: detects accesses by the process's own instructions */
	UMMAP_ENGINE_UFFD = 3,    /* userfaultfd(2): detects the kernel's accesses too; Linux 6.8 */
	UMMAP_ENGINE_SIGBUS = 4   /* userfaultfd(2) with SIGBUS: as segv, fast for small segments */
};

/*
 * Values of ummap_attr.on_full. If writes fail, for example because the file system is full,
 * changes stay in memory. When the memory for changes is used up (UMMAP_OVER_BUDGET, see
 * ummap-memory(7)), the value decides what happens to a thread that stores to the mapping.
 */
enum {
	UMMAP_FULL_DEFAULT = 0, /* value of the environment variable UMMAP_ON_FULL */
	UMMAP_FULL_WAIT = 1,    /* the thread waits until writes have made room */
	UMMAP_FULL_SIGBUS = 2   /* the thread receives SIGBUS */
};

/*
 * Attributes of a new mapping. A program starts from UMMAP_ATTR_INIT and changes fields. Zero is
 * the default of every field but the first; later releases may append fields with the same default.
 */
struct ummap_attr {
	size_t struct_size;   /* size of the structure: sizeof(struct ummap_attr) */
	size_t seg_size;      /* bytes of a segment, or 0, as for ummap */
	int flush_interval;   /* seconds until a dirty segment is made durable; 0: never */
	int ptype;            /* policy UMMAP_PTYPE_*, if `policy` is NULL; 0: UMMAP_PTYPE_S3FIFO */
	unsigned flags;       /* any of the flags UMMAP_CREATE to UMMAP_NODE */
	const char *policy;   /* policy by name, "fifo" or "prnd:seed=7"; NULL: ptype */
	size_t budget;        /* bytes that the mapping or its group may have in memory; 0: those of
				 the process */
	const char *group;    /* name of a group, whose mappings share a policy and a budget;
				 1 to 31 letters, digits, '-', '_', '.'; NULL: none */
	int engine;           /* engine, UMMAP_ENGINE_* */
	size_t before, after; /* bytes of addresses to reserve for the caller, directly before the
				 mapping and behind its last page; multiples of the page size */
	int on_full;          /* effect of stores when writes fail, UMMAP_FULL_* */
	size_t flush_rate;    /* bytes per second that umsync_begin's commits write at most; 0:
				 value of the environment variable UMMAP_FLUSH_RATE */
	const char *tiers;    /* names of the tiers of UMMAP_TIERS that segments may be in,
				 "hbm,dram"; NULL: all */
};

#define UMMAP_ATTR_INIT { sizeof(struct ummap_attr), 0, 0, UMMAP_PTYPE_DEFAULT, 0, NULL, 0, NULL, \
			  UMMAP_ENGINE_DEFAULT, 0, 0, UMMAP_FULL_DEFAULT, 0, NULL }

/*
 * Maps the bytes [offset, offset + size) of the store that a URI names: "posix:/data/a" or
 * "posix:/data/a.{rank}?direct=never".
 *
 * uri   URI of the store; ummap_open(3) describes its form, ummap-drivers(7) the drivers
 * attr  attributes; NULL: the defaults
 *
 * The other arguments are those of ummap. Errors: as for ummap; EINVAL (the URI or an attribute is
 * invalid); ENOENT (the store is missing, without UMMAP_CREATE); EPERM, ENOSYS, EOPNOTSUPP (the
 * engine, UMMAP_KERNEL or UMMAP_SHARED cannot be used here); errors of opening the store.
 */
int ummap_open(const char *uri, size_t size, off_t offset, int prot,
	       const struct ummap_attr *attr, void **addr);

/*
 * Changes the store, the offset or the size of a mapping as umremap does. The new store is named by
 * a URI; NULL: unchanged. A missing store is created, unless sync has UMMAP_SWITCH. Errors: as for
 * umremap, and as for ummap_open for the URI.
 */
int umremap_open(void *old_addr, const char *uri, size_t size, off_t offset, int sync,
		 void **new_addr);

/*
 * Sets the variable {name} of URIs.
 *
 * name   1 to 63 letters, digits and '_'; {rank}, {pid} and {host} are predefined and cannot be set
 * value  text of at most 4095 bytes, which is copied; NULL: the variable is removed
 *
 * Errors: EINVAL (name, or a value that is too long); ENOMEM (no memory, or 256 variables are set).
 */
int ummap_setvar(const char *name, const char *value);

/* Flags of umsync_range. */
#define UMMAP_ASYNC 1   /* start the transfer, and do not wait for it */
#define UMMAP_EVICT 2   /* evict the segments after they have been written */
#define UMMAP_NOFLUSH 4 /* write the changes without making them durable; also for umunmap */

/*
 * Syncs the segments that the range [addr, addr + len) touches; addr may be any byte of a mapping.
 *
 * flags  0, or any of UMMAP_ASYNC, UMMAP_EVICT and UMMAP_NOFLUSH
 *
 * Errors: as for umsync; EINVAL (addr is in no mapping, len is 0, unknown flags); ENOMEM (the range
 * reaches beyond the end of the mapping). The next sync reports errors of an asynchronous one.
 */
int umsync_range(void *addr, size_t len, int flags);

/* A commit that umsync_begin has begun. */
struct umsync_handle;

#define UMMAP_NOWAIT 8 /* umsync_begin: fail with EAGAIN if a commit is in flight */

/*
 * Begins a commit of the mapping that begins at addr: the contents of this moment become durable in
 * the background. Stores after the call go on at once and are not part of the commit. A mapping has
 * one commit in flight: without UMMAP_NOWAIT, the call waits until an earlier one has ended.
 *
 * flags   0 or UMMAP_NOWAIT
 * handle  result: the commit, for umsync_test or umsync_wait, one of which must free it
 *
 * Errors: EINVAL (no mapping begins at addr, unknown flags, or handle is NULL); EAGAIN; ENOMEM.
 */
int umsync_begin(void *addr, int flags, struct umsync_handle **handle);

/*
 * Sets *done to whether the commit has ended. Once it has, the call returns what umsync_wait
 * returns, frees the handle and sets *handle to NULL.
 */
int umsync_test(struct umsync_handle **handle, int *done);

/*
 * Waits until the commit has ended, frees the handle and sets *handle to NULL. Returns 0 if the
 * contents at the moment of umsync_begin are durable. Errors: those of umsync; EINVAL (handle or
 * *handle is NULL, or the commit is one of this forked process's parent that had not ended at the
 * fork). Changes that could not be written stay in memory, and the next umsync or umsync_begin
 * writes them.
 */
int umsync_wait(struct umsync_handle **handle);

/*
 * Reads which commits of a store can be opened again. A store behind the filter wal+ numbers its
 * syncs: each umsync that returns 0 makes one commit.
 *
 * addr            any byte of the mapping
 * oldest, newest  result: commit numbers, the values that the URI key wal.commit accepts
 *
 * Errors: EINVAL (addr is in no mapping, or a result pointer is NULL); EOPNOTSUPP (no wal+).
 */
int umcommits(const void *addr, uint64_t *oldest, uint64_t *newest);

/*
 * Makes the store of the mapping that begins at addr at least `size` bytes long, without writing to
 * it. Bytes that were never written read as zeros. A store that is longer already is unchanged. The
 * size of the mapping does not change. This gives the file of a mapping with UMMAP_GROWS a length,
 * whatever bytes were stored.
 *
 * Errors: EINVAL (no mapping begins at addr, or size is larger than any file); EACCES (the mapping
 * is read-only); EOPNOTSUPP (the store has a fixed length); an error of the storage.
 */
int umlengthen(void *addr, uint64_t size);

/* Advice for umadvise. */
enum {
	UMMAP_ADV_NORMAL = 0,     /* mapping: read ahead when consecutive segments are accessed */
	UMMAP_ADV_RANDOM = 1,     /* mapping: no readahead */
	UMMAP_ADV_SEQUENTIAL = 2, /* mapping: read ahead at once; evict behind the reader early */
	UMMAP_ADV_WILLNEED = 3,   /* range: load its segments in the background */
	UMMAP_ADV_DONTNEED = 4,   /* range: write its dirty segments, then evict its segments */
	UMMAP_ADV_DISCARD = 5,    /* range: drop its contents, which then read as zeros */
	UMMAP_ADV_ANY_TIER = 31,  /* range: its segments may be in any tier again */
	UMMAP_ADV_TIER = 32       /* range: with n added, keep its segments in tier n, from 0 on */
};

/*
 * Tells the library how the range [addr, addr + len) will be used. NORMAL, RANDOM and SEQUENTIAL
 * apply to the whole mapping until other advice of these three is given. WILLNEED and DONTNEED act
 * on the segments that the range touches. DISCARD acts on segments that lie completely in the
 * range, and requires a mapping with UMMAP_BLANK. TIER + n moves the segments that the range
 * touches to the n-th tier of UMMAP_TIERS, and keeps them there while they are in memory; a mapping
 * can have eight such ranges.
 *
 * Errors: EINVAL (addr is in no mapping, len is 0, unknown advice; DISCARD without UMMAP_BLANK;
 * TIER without such a tier); ENOSPC (TIER: the mapping has eight such ranges);
 * ENOMEM (the range reaches beyond the end of the mapping); EBUSY (DISCARD: a segment is pinned,
 * the others were discarded); with DONTNEED, errors of the storage.
 */
int umadvise(void *addr, size_t len, int advice);

/*
 * Loads the segments that n ranges touch, in the background, without waiting for them. All ranges
 * must be in one mapping. They may have any order and size, and may overlap. Segments of the first
 * ranges are preferred; segments for which the budget has no room are not loaded.
 *
 * Errors, after which nothing is loaded: EINVAL (n is negative, ranges is NULL, a length is 0, or
 * the first range begins in no mapping); ENOMEM (a range is not completely in the mapping in which
 * the first one begins; no memory for the list).
 */
int umprefetch(const struct iovec *ranges, int n);

/*
 * Loads the segments that [addr, addr + len) touches, and keeps them resident until umunpin, so
 * that a system call, MPI or a device can access them. Pins nest, and pinned memory counts towards
 * the budget.
 *
 * prot  PROT_READ; or PROT_READ | PROT_WRITE: the segments are writable, and stay dirty until they
 *       are unpinned and written again
 *
 * Errors: EINVAL (addr is in no mapping, len is 0, invalid prot); EACCES (the mapping is
 * read-only); ENOMEM (the range reaches beyond the end of the mapping, or pins would exceed the
 * budget); EAGAIN (a segment has 2047 pins); errors of the storage. After an error nothing is
 * pinned.
 */
int umpin(void *addr, size_t len, int prot);

/*
 * Removes one pin from each segment that [addr, addr + len) touches; the range must be that of an
 * earlier umpin. Errors: EINVAL (as for umpin, or a segment is not pinned), ENOMEM.
 */
int umunpin(void *addr, size_t len);

/*
 * Copies len bytes as memcpy(3) does, and returns an error where the copy's loads and stores in a
 * mapping would raise SIGBUS. The function that umonerror has set is not called. Each range may be
 * in a mapping or in other memory; the ranges must not overlap.
 *
 * Errors, after which the contents of [dst, dst + len) are unspecified: errors of the storage; the
 * error of the failed write, where stores are refused (UMMAP_FULL_SIGBUS).
 */
int umcopy(void *dst, const void *src, size_t len);

/*
 * Starts the library, as the first mapping does: reads the settings of the environment, and takes
 * part in the node's limit, so that umstat knows the budget of the process. Errors: EINVAL (a
 * setting is invalid); ENOMEM, EAGAIN (no resources).
 */
int umstart(void);

/* The largest number of tiers (ummap-tiers(7)). */
#define UMMAP_MAX_TIERS 4

/*
 * Counters of a mapping since it was made, or of the process since the library has started. "Now"
 * marks values that go up and down; all others only grow.
 */
struct umstat {
	uint64_t struct_size;     /* size of the structure; the caller sets sizeof(struct umstat) */
	uint64_t read_faults;     /* loads from segments that were not resident */
	uint64_t write_faults;    /* stores to segments that were not resident */
	uint64_t upgrade_faults;  /* stores to segments that were resident, but not writable */
	uint64_t spurious_faults; /* faults that another thread had already served */
	uint64_t inactive_hits;   /* read and write faults that found an inactive segment: no I/O */
	uint64_t readahead_hits;  /* read and write faults that found a segment read ahead */
	uint64_t readahead_waste; /* segments that were read ahead and reclaimed unused */
	uint64_t readahead_loads; /* segments that were read ahead */
	uint64_t evictions;       /* segments that were removed from the mapped range */
	uint64_t read_bytes;      /* bytes read from storage */
	uint64_t read_requests;   /* read requests to the driver */
	uint64_t write_bytes;     /* bytes written to storage */
	uint64_t write_requests;  /* write requests to the driver */
	uint64_t flushes;         /* flush requests to the driver, which make writes durable */
	uint64_t read_errors;     /* reads that failed */
	uint64_t write_errors;    /* writes and flushes that failed */
	uint64_t resident_bytes;  /* bytes of resident segments, now */
	uint64_t inactive_bytes;  /* bytes of inactive segments, including those read ahead, now */
	uint64_t dirty_bytes;     /* bytes of dirty segments, now */
	uint64_t pinned_bytes;    /* bytes of pinned segments, now */
	uint64_t budget_bytes;    /* budget of the mapping, of its group, or of the process, now */
	uint64_t held_bytes;      /* bytes of all frames, free ones included, and of this process's
				     part of node copies, now; process only */
	uint64_t over_budget_peak;/* largest excess of held_bytes over the budget; process only */
	uint64_t mappings;        /* number of mappings, now; process only */
	uint64_t pagecache_bytes; /* bytes of page-cache mappings, which use the budget, now */
	uint64_t lost_bytes;      /* bytes that failed flushes may have lost; not 0: syncs fail */
	uint64_t engine;          /* engine UMMAP_ENGINE_*; 0: mapped in place; mapping only */
	uint64_t kernel;          /* 1: system calls may cause faults; mapping only */
	uint64_t waiting_bytes;   /* dirty bytes of mappings whose last write failed, now */
	uint64_t transfer_bytes;  /* bytes that a fault loads at most, now; mapping only */
	uint64_t commit_bytes;    /* bytes that commits in flight have yet to write, now */
	uint64_t tiers;           /* number of tiers of UMMAP_TIERS; process only */
	/* For each of the tiers; process only: */
	uint64_t tier_bytes[UMMAP_MAX_TIERS];      /* bytes of its frames, free ones too, now */
	uint64_t tier_loads[UMMAP_MAX_TIERS];      /* segments that were loaded into it */
	uint64_t tier_promotions[UMMAP_MAX_TIERS]; /* segments that came from a slower tier */
	uint64_t tier_demotions[UMMAP_MAX_TIERS];  /* segments that left for a slower tier */
	uint64_t tier_hits[UMMAP_MAX_TIERS];       /* samples whose segment was used again */
};

/*
 * Fills *st with the counters of the mapping that contains addr, or of the process if addr is NULL.
 * Writes at most st->struct_size bytes. Errors: EINVAL (addr is in no mapping, st is NULL, or
 * st->struct_size is not between 8 and 4096).
 */
int umstat(const void *addr, struct umstat *st);

/*
 * Sets the function that is called before a thread receives SIGBUS because a segment could not be
 * read from the storage, or because a store was refused (UMMAP_FULL_SIGBUS). The function replaces
 * the previous one; NULL: none. Returns 0.
 *
 * fn  runs in a signal handler on the faulting thread, with the accessed address and an errno
 *     value; it may only do what signal-safety(7) allows, and must not use mappings or this library
 */
int umonerror(void (*fn)(void *addr, int error));

/*
 * For libraries above this one: sets the function that is called before a thread receives SIGSEGV
 * because it stores to a read-only mapping. The function replaces the previous one; NULL: none.
 * Returns 0.
 *
 * fn  runs in a signal handler on the faulting thread, with the accessed address. It may end the
 *     mapping and put another one in its place (umunmap_onto). It returns 1 if the thread shall try
 *     the store again, or 0 if it shall receive the signal. It learns of all stores to mappings
 *     that are made after this call
 */
int umonstore(int (*fn)(void *addr));

/* ---- Access to the memory of other processes' mappings: umexport(3) ---- */

/* Description of an exported mapping: plain bytes, which may be sent to other processes. */
struct umexport {
	uint64_t word[8];        /* contents, which only the library interprets */
};

/*
 * Fills *exported with the description of the mapping that begins at addr, which must have been
 * made with UMMAP_SHARED. The description is valid until the mapping ends. Errors: EINVAL (no
 * mapping begins at addr, or exported is NULL); EOPNOTSUPP (the mapping has no UMMAP_SHARED).
 */
int umexport(void *addr, struct umexport *exported);

/* Handle of a mapping of another process, or of this one. */
struct umimport;

/*
 * Opens an exported mapping, and stores its handle in *imported. The handle belongs to this
 * process: in a forked child it gives access to nothing.
 *
 * Errors: EINVAL (not a description, or of another version); EXDEV (another machine or container);
 * ESRCH (the owner has ended); ESTALE (the mapping has ended); EACCES, EPERM (this process may not
 * open the owner's memory); EAGAIN (1023 handles of it are open); ENOMEM.
 */
int umimport_open(const struct umexport *exported, struct umimport **imported);

/*
 * Copies bytes [offset, offset + len) of an imported mapping to buf. Returns the number of bytes
 * copied, from offset on. The copy stops before a segment that is not in memory, or that its owner
 * is loading, writing or moving. The call never waits for storage, and has no errors.
 */
size_t umimport_get(struct umimport *imported, void *buf, size_t len, uint64_t offset);

/*
 * Copies len bytes from buf to the bytes from offset on of an imported mapping. Returns the number
 * of bytes copied. The copy stops where that of umimport_get stops, and also before a segment that
 * is not dirty. The call has no errors.
 */
size_t umimport_put(struct umimport *imported, const void *buf, size_t len, uint64_t offset);

/* Segment of an imported mapping that umimport_hold has made accessible. */
struct umhold {
	char *addr;              /* address of the byte at the requested offset, in this process */
	size_t len;              /* bytes from addr to the end of the segment, or of the mapping */
	void *slot;              /* internal */
};

/*
 * Gives direct access to the bytes from offset on, for atomic instructions or many small accesses.
 * A successful call is a full memory barrier. Until umimport_release, the owner waits if it has to
 * write or evict the segment. A thread must therefore hold only one segment at a time, and only for
 * microseconds; meanwhile, it must not access a mapping (see ummapped), wait, or be stopped.
 *
 * store  0: the bytes are only loaded; other values: they may be stored to
 *
 * Returns 0; or -1 without errno, if umimport_get (or umimport_put, for store) would copy nothing.
 */
int umimport_hold(struct umimport *imported, uint64_t offset, int store, struct umhold *hold);

/* Ends the access that umimport_hold has given. */
void umimport_release(struct umhold *hold);

/* Returns 1 if a byte of [addr, addr + len) is in a mapping of this process, else 0. */
int ummapped(const void *addr, size_t len);

/* Closes a handle, which no thread may be using; NULL: nothing happens. */
void umimport_close(struct umimport *imported);

/* ---- Errors and faults ---- */

/*
 * Returns the message about the last call of libummap that this thread has made: why it failed, or
 * "" if it succeeded. umimport_get, umimport_put and umimport_hold give no reason: the message is
 * "" after them, too. umfault does not change the message. Never returns NULL. The text is valid
 * until the thread's next call.
 */
const char *umerrormsg(void);

/*
 * For libraries above this one: sets the message that umerrormsg returns to this thread, and errno.
 * The format is that of printf(3). Returns -1.
 */
__attribute__((format(printf, 2, 3)))
int umseterror(int error, const char *format, ...);

/*
 * Serves a fault for a signal handler that the program has installed in front of the library's. The
 * arguments are those of an SA_SIGINFO handler of SIGSEGV or SIGBUS. Returns 1 if the library has
 * served the fault, and the handler must return; 0 if the handler must deal with the fault.
 */
int umfault(int sig, void *info, void *context);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
