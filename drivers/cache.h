/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the filter cache+ share: its handle. cache.c has the calls of a driver and reads, cache_write.c writes,
 * cache_home.c has the thread: it writes back, makes room, and fills the cache ahead; cache_send.c has the requests of that. */
#ifndef DRIVERS_CACHE_H
#define DRIVERS_CACHE_H

#include <limits.h>
#include <pthread.h>

#include "behind.h"
#include "cache_near.h"
#include "common/futex.h"
#include "held.h"
#include "notice.h"
#include "common/cursor.h"

enum cache_mode {
	CACHE_BACK,                    /* what is written goes to the cache, and to the far store later */
	CACHE_THROUGH,                 /* ... to the far store, and to the cache */
	CACHE_READ                     /* ... to the far store only */
};

#define CACHE_SLICES 60                /* pieces of memory in one request */
#define CACHE_STAMPS 64
#define CACHE_DIRECT_END (((uint64_t)1 << 32) - 1)  /* added to a stamp: one more was, and one less is */

/* Things that go wrong for a while. */
enum cache_trouble { CACHE_NEAR_FAILS = 1, CACHE_FAR_FAILS = 2 };

enum cache_flushed { CACHE_FLUSHED, CACHE_UNFLUSHED, CACHE_BEING_FLUSHED };

/* A dirty slot that is being written back. */
struct cache_flight {
	uint64_t block;
	cache_mask sectors;
	uint32_t slot, clean;          /* both are pinned; clean may be CACHE_NO_SLOT */
	int unread;                    /* how reading it from the near file failed: it stays, and the others fly */
};

#define CACHE_BUFFER ((size_t)1 << 20) /* bytes of one request that writes back */
#define CACHE_CREW 7                   /* threads that send along with the caller */

struct cache_member {
	struct cache *cache;
	pthread_t thread;
	char *buffer;
};

struct cache_crew {
	struct cache_member member[CACHE_CREW];
	unsigned n;                    /* that there are; under `homing` */
	_Atomic uint32_t called;       /* goes up when they are to look */
	_Atomic uint32_t there;        /* that look */
	_Atomic int places;            /* of this flight, that are free */
	_Atomic bool dismissed;
	/* Of this flight. */
	_Atomic uint32_t lock;         /* around `next` */
	unsigned slots, next;
	bool gently;
	_Atomic int err;
};

struct cache {
	struct behind far;
	struct cache_near near;
	enum cache_mode mode;
	bool writable, grows, async;
	bool flush_far;                /* a flush makes durable in the far store */
	bool populate;
	bool keep;                     /* what is dirty when it is closed stays so */
	bool lasts;                    /* the far store can be there when it is opened again */
	char store[PATH_MAX];          /* the far store's path; "": it has none, or is no file */
	int far_fd;                    /* only to be looked at; negative: none */
	_Atomic uint64_t size;         /* of the store, what is in the cache included */
	uint32_t dirty_most;           /* slots ... */
	uint32_t dirty_age;            /* ... and seconds that may be dirty */
	_Atomic uint32_t trouble;      /* enum cache_trouble: now */
	_Atomic int failed[2];         /* near, far: with what each began; 0: it did not, or was told */
	struct notice notice;
	_Atomic uint32_t odd;          /* a lock, across writing a part of a sector to the near file */
	_Atomic unsigned far_readers;  /* who wait for the far store */
	/* What is written past the cache, by blocks: how often, and (in the low half) by how many now. */
	_Atomic uint64_t stamp[CACHE_STAMPS];
	_Atomic uint64_t direct;       /* the same for the whole store */
	_Atomic uint64_t settled;      /* what `direct` was when the far store was flushed for that */
	_Atomic uint32_t far_unflushed; /* whether it has not been flushed since (enum cache_flushed) */
	_Atomic bool landed;           /* what was written back is dirty still, as the last pass has it */
	_Atomic int far_lost;          /* how a flush of it has failed that may have lost some; until somebody was told */
	/* The thread. */
	pthread_t thread;
	bool has_thread;
	_Atomic uint32_t word;         /* goes up when there is something to see */
	_Atomic bool stop;
	_Atomic uint32_t stepping;     /* a lock, around a step of the thread and a hand-over */
	bool handed;                   /* the store is handed over to another handle */
	bool handed_near;              /* the other handle may use this near file */
	_Atomic uint32_t flushing;     /* a lock, around flushes of the far store */
	_Atomic bool far_doubt;        /* what was written past the cache may be read, and be lost with the power: its regions stay
					* intended, so that what was kept of them is not trusted when the file is opened again */
	_Atomic unsigned far_failures; /* flushes of it that may have lost some */
	_Atomic uint32_t homing;       /* a lock, around writing back and what follows; before `flushing` */
	struct cache_flight *flight;   /* under `homing` */
	char *buffer;                  /* under `homing` */
	struct cache_crew crew;        /* one flight at a time: under `homing` */
	uint32_t told[2];              /* the thread's: when each trouble was told, in seconds from 1; 0: never */
	uint32_t tried;                /* the thread's: when it wrote back last */
	_Atomic uint64_t unstarted;    /* bytes that were written to the near file since the system last began to write them */
	uint64_t populated;            /* the thread's: as far as this */
	struct held held[HELD_MAX];
};

static inline void cache_lock(struct cache *c)
{
	futex_lock(&c->near.index.lock);
}

static inline void cache_unlock(struct cache *c)
{
	futex_unlock(&c->near.index.lock);
}

static inline uint32_t cache_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint32_t)now.tv_sec;
}

static inline uint64_t cache_block_of(const struct cache *c, uint64_t off)
{
	return off >> c->near.block_shift;
}

/* The sectors of a block that a range touches. */
static inline cache_mask cache_sectors_of(const struct cache *c, uint64_t block, uint64_t off, uint64_t end)
{
	uint64_t base = block << c->near.block_shift, next = base + ((uint64_t)1 << c->near.block_shift);
	unsigned from = off > base ? (unsigned)((off - base) >> c->near.sector_shift) : 0;
	unsigned to = (unsigned)(((end < next ? end : next) - 1 - base) >> c->near.sector_shift);

	return cache_mask_of(from, to - from + 1);
}

/* ---- cache.c ---- */

/* Keeps what comes from the far store, if `keep`. */
int cache_read_at(struct cache *c, struct cursor *cursor, bool keep);
/* Puts whole sectors of what was just read from the far store, or written to it, into clean slots, as far as there is room. */
void cache_keep(struct cache *c, struct cursor cursor);
/* The store is at least so long. */
void cache_has_grown(struct cache *c, uint64_t end);
/* What a request to the near file or the far store came to. That one of them fails is told when it begins. */
void cache_near_failed(struct cache *c, int err);
void cache_far_was(struct cache *c, int err);
/* Flushes it. Where that may have lost what was written past the cache, the next flush by the driver's caller says so. */
int cache_flush_far(struct cache *c);
/* The same if something was written past the cache since; a flush that another thread has begun is over then. */
int cache_flush_past(struct cache *c);
/* A pass, after which a near file that failed may be used again. */
int cache_make_durable(struct cache *c);

/* ---- cache_write.c ---- */

int cache_writev(void *h, const struct iovec *iov, int n, uint64_t off);

/* ---- cache_home.c ---- */

int cache_home_init(struct cache *c);
void cache_home_end(struct cache *c);
int cache_start_thread(struct cache *c, struct ummap_geom *geom);
void cache_stop_thread(struct cache *c);
void cache_tell(struct cache *c);
/* So many bytes were written to the near file. */
void cache_has_written(struct cache *c, size_t bytes);
/* Gives notice of trouble that has begun. */
void cache_give_notice(struct cache *c);
/* Writes back all that is dirty now, and flushes the far store. */
int cache_bring_home(struct cache *c);
/* Slots that are kept free, and that there are so many. */
uint32_t cache_reserve(const struct cache *c);
void cache_keep_room(struct cache *c);
/* Empties slots until some are free, durably. */
void cache_make_room(struct cache *c);
/* Flushes the far store; then nothing is intended any more that is not under way. */
int cache_settle_far(struct cache *c);
/* Looks at the far store, for the head; whether it is a file or a device. */
bool cache_look_at_far(struct cache *c, struct cache_facts *facts);

/* ---- cache_send.c ---- */

/* Sends c->flight, which has so many slots in the order of their blocks. Gently: readers of the far store come first. */
int cache_send(struct cache *c, unsigned n, bool gently);
/* Readers of the far store come first, for a while. */
void cache_yield(struct cache *c);
/* Starts threads that send along, as far as there can be some; not in a signal handler, and under `homing` or before the thread. */
void cache_gather_crew(struct cache *c);
void cache_dismiss_crew(struct cache *c);
char *cache_new_buffer(void);
void cache_free_buffer(char *buffer);

#endif
