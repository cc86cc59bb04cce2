/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handle of the filter cache+, whose near file is an overlay with a fixed number of slots
 * (overlay.h: THE POLICY CACHE). cache.c opens and closes, cache_transfer.c reads and writes,
 * cache_back.c has the thread: it writes back, makes room, and fills the near file ahead.
 * cache_guest.c reads the near file of another handle.
 *
 * LOCKS, from the outermost one: `stepping` around steps of the thread and a handover; the
 * overlay's `parts`; `homing` around writing back; `flushing` around flushes of the far store; the
 * overlay's `file_lock` and `lock`. The overlay's `lock` protects the index, too.
 */
#ifndef DRIVERS_CACHE_H
#define DRIVERS_CACHE_H

#include <pthread.h>
#include <time.h>

#include "cache_index.h"
#include "common/cursor.h"
#include "common/futex.h"
#include "overlay.h"

enum cache_mode {
	CACHE_BACK,                    /* writes go to the near file, and to the far store later */
	CACHE_THROUGH,                 /* writes go to the far store and to the near file */
	CACHE_READ                     /* writes go to the far store only */
};

#define CACHE_PIECES 60                /* pieces of memory in one request */
#define CACHE_BUFFER ((size_t)1 << 20) /* bytes that are read ahead at once */
#define CACHE_WRITE_BEGINS 1           /* added to cache.past: a write past the near file begins */
#define CACHE_WRITE_ENDS (((uint64_t)1 << 32) - 1)

/* Bits of cache.trouble. */
enum cache_trouble { CACHE_NEAR_FAILS = 1, CACHE_FAR_FAILS = 2 };

/* Indexes of cache.failed. */
enum cache_failure { CACHE_NEAR, CACHE_FAR, CACHE_SUM, CACHE_FAILURES };

enum cache_flushed { CACHE_FLUSHED, CACHE_UNFLUSHED, CACHE_BEING_FLUSHED };

/* A dirty slot that is being written back. */
struct cache_flight {
	uint64_t block, parts;
	uint32_t slot;
	_Atomic int unread;            /* error of reading the slot, which stays dirty then */
};

struct cache {
	struct overlay o;              /* the near file, and the far store as o.store */
	struct cache_index index;
	unsigned shift;                /* binary logarithm of the block size */
	enum cache_mode mode;
	bool async;
	bool flush_far;                /* whether a flush writes back */
	bool keep;                     /* whether dirty blocks stay when the handle is closed */
	bool lasts;                    /* whether the far store outlives the process */
	bool populates;                /* whether the near file is filled ahead */
	bool is_fixed;                 /* whether the far store shows the same bytes as long as it
					* has the same identity, and is not written */
	bool is_guest;                 /* whether another handle fills the near file */
	bool guest_is_out;             /* whether its slots are not looked at any more */
	uint32_t guest_next;           /* slot that is looked at next; under `homing` */
	_Atomic uint64_t guest_time;   /* ms when slots were looked at last */
	_Atomic bool commit_due;       /* whether guests wait for a commit of clean slots */
	uint32_t committed;            /* second of the last such commit */
	_Atomic bool touched;          /* whether the header says so (OVERLAY_TOUCHED) */
	char store[PATH_MAX];          /* path or quoted URI of the far store; "": none */
	int far_fd;                    /* descriptor of the far store for fstat; negative: none */
	uint32_t max_dirty;            /* slots that may be dirty */
	uint32_t max_age;              /* seconds for which a slot may be dirty */
	_Atomic uint32_t trouble;      /* enum cache_trouble bits */
	_Atomic unsigned nerrors[2];   /* number of errors of the near file and of the far store */
	/* Unreported errors of the near file, of the far store and of a checksum. */
	_Atomic int failed[CACHE_FAILURES];
	_Atomic uint64_t damaged;      /* block that differed from its checksum last */
	_Atomic unsigned far_readers;  /* number of calls that read the far store */
	_Atomic unsigned far_reads;    /* number of asynchronous reads that have begun */
	uint64_t last_drop;            /* number of the commit that has all slots emptied so far */
	bool mending;                  /* whether threads must not write dirty slots; under lock */
	/* Writes past the near file: under way in the low half, completed ones in the high half. */
	_Atomic uint64_t past;
	_Atomic uint64_t settled;      /* `past` when the far store was flushed after them */
	_Atomic uint64_t far_changes;  /* changes when the far store does */
	_Atomic uint32_t far_unflushed; /* an enum cache_flushed */
	_Atomic bool far_doubt;        /* whether a flush may have lost such writes */
	_Atomic int far_lost;          /* error of such a flush that no caller has got */
	_Atomic unsigned far_failures; /* number of flushes of the far store that have failed */
	_Atomic bool landed;           /* whether slots are clean, but dirty in the newest commit */
	_Atomic uint32_t flushing, homing, stepping;
	struct cache_flight *flight;   /* under `homing` */
	char *buffer;                  /* CACHE_BUFFER bytes; under `homing` */
	/* The thread. */
	pthread_t thread;
	bool has_thread;
	_Atomic uint32_t news;         /* changes when the thread must look for work */
	_Atomic bool stop;
	bool handed;                   /* whether the store is handed over to another handle */
	bool handed_near;              /* whether the other handle may use the near file */
	uint32_t told[CACHE_FAILURES]; /* seconds of the last notices of trouble; 0: none */
	uint32_t tried;                /* second of the last attempt to write back */
	_Atomic uint64_t unstarted;    /* bytes written since side_start was called */
	uint64_t populated;            /* offset up to which the near file was filled ahead */
};

static inline struct cache *cache_of(struct overlay *o)
{
	return (struct cache *)o;
}

static inline uint32_t cache_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint32_t)now.tv_sec;
}

static inline void cache_pause(void)
{
	nanosleep(&(struct timespec){ 0, 20000 }, NULL);
}

static inline size_t cache_block_bytes(const struct cache *c)
{
	return (size_t)1 << c->shift;
}

/* n parts of a block from `first` on, as bits. */
static inline uint64_t cache_parts(unsigned first, unsigned n)
{
	return (n == 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1) << first;
}

/* The number of parts from `first` on, at most n, that all are in the set, or all are not. */
static inline unsigned cache_run(uint64_t set, unsigned first, unsigned n)
{
	uint64_t rest = set >> first, ends = rest & 1 ? ~rest : rest;

	return ends && (unsigned)__builtin_ctzll(ends) < n ? (unsigned)__builtin_ctzll(ends) : n;
}

static inline struct overlay_slot *cache_slot(struct cache *c, uint32_t slot)
{
	return overlay_slot(&c->o, slot);
}

/* ---- cache.c: slots, under the lock, and commits ---- */

/* Takes at most n free slots that are consecutive in the file. Returns how many. */
unsigned cache_take(struct cache *c, unsigned n, uint32_t *first);
/* Gives a taken slot to a block, which has no slot of this kind. */
void cache_put(struct cache *c, uint32_t s, uint64_t block, bool dirty, uint64_t parts);
/* Changes the parts that a slot has, which has no sum then. A clean slot without parts is
 * emptied. */
void cache_set_parts(struct cache *c, uint32_t s, uint64_t parts);
/* Adds the sum of parts that a slot has got: its other parts had the sum `before`, or there are
 * none. */
void cache_add_sum(struct cache *c, uint32_t s, uint64_t before, uint64_t sum);
/* Empties a slot that the index has, or has no more. */
void cache_drop(struct cache *c, uint32_t s);
void cache_empty(struct cache *c, uint32_t s);
/* A clean slot becomes doubtful if the far store may lose the writes that its blocks come from. */
void cache_doubt(struct cache *c, uint32_t s);

/* Commits all changes of the near file. */
int cache_commit(struct cache *c);
/* Notes the result of a request to the near file or the far store. */
void cache_near_failed(struct cache *c, int err);
void cache_far_was(struct cache *c, int err);
/* Makes durable in the header that this handle writes the far store (order 14). */
int cache_touch_far(struct cache *c);

/* ---- cache_guest.c ---- */

/* Whether another process may use the near file together with this handle, or the reverse. */
static inline bool cache_may_share(const struct cache *c)
{
	return c->is_fixed && !c->o.writable;
}

/* Opens the near file, which another handle has, as a guest. -EAGAIN: the other handle has not made
 * it yet, or it cannot be shared. */
int cache_guest_open(struct cache *c, const char *path, struct ummap_geom *geom);
/* Fills the index of a guest. */
int cache_guest_start(struct cache *c, struct ummap_geom *geom);
/* Notes this machine in the header of a near file that guests may use. */
int cache_note_machine(struct cache *c);
/* Whether the bytes of a slot were read, and its record then still has this sum. If not, removes
 * the slot from the index. */
bool cache_guest_check(struct cache *c, uint32_t s, uint64_t sum, bool is_read);
/* Looks for slots that the other handle has filled, some at a time and not too often. Returns
 * whether the index has changed. */
bool cache_guest_look(struct cache *c);

/* ---- cache_transfer.c ---- */

int cache_read(void *h, void *buf, size_t len, uint64_t off);
int cache_readv(void *h, const struct iovec *iov, int n, uint64_t off);
int cache_write(void *h, const void *buf, size_t len, uint64_t off);
int cache_writev(void *h, const struct iovec *iov, int n, uint64_t off);
int cache_submit(void *h, struct ummap_io **io, unsigned n);
int cache_reap(void *h, struct ummap_io **done, unsigned max, unsigned min);
/* Puts whole parts that were just read from the far store, or written to it, into clean slots, as
 * far as there is room. With `new_only`, blocks that have a slot are left out, and nothing is kept
 * if cache.far_changes is another number. */
void cache_keep(struct cache *c, struct cursor cursor, const uint64_t *new_only);
/* Empties all clean slots for which a function returns true. */
void cache_drop_all(struct cache *c, bool (*wants)(struct cache *c, uint32_t s));
/* If the handle verifies, sums up parts of a slot as they are in the near file. */
int cache_sum_parts(struct cache *c, uint32_t s, uint64_t parts, uint64_t *sum);
/* Copies parts from one slot to another one, or writes them again. */
int cache_copy_parts(struct cache *c, uint32_t from, uint32_t to, uint64_t parts);
/* overlay_policy.has_failed and mend. */
void cache_forget_unflushed(struct overlay *o);
int cache_mend(struct overlay *o);

/* ---- cache_back.c ---- */

int cache_start(struct cache *c, struct ummap_geom *geom);
void cache_stop(struct cache *c);
void cache_free(struct cache *c);
/* Has the thread look for work. */
void cache_wake(struct cache *c);
/* Notes that so many bytes were written to the near file. */
void cache_has_written(struct cache *c, size_t bytes);
void cache_give_notices(struct cache *c);
/* Writes all dirty blocks back, and flushes the far store. */
int cache_write_back(struct cache *c);
/* The number of slots that should be free. */
uint32_t cache_reserve(const struct cache *c);
/* Evicts slots until enough are free, durably. */
void cache_make_room(struct cache *c);
/* Flushes the far store, `always` or if it was written past the near file since the last flush.
 * After an error that may have lost such writes, the next flush by the driver's caller fails. */
int cache_flush_far(struct cache *c, bool always);
/* Flushes the far store. Afterwards, clean slots are doubtful only if writes are under way. */
int cache_settle_far(struct cache *c);

#endif
