/* SPDX-License-Identifier: BSD-3-Clause */
/* A mapping: its range, its segments and where each is in storage, and which were ever touched. */
#ifndef MAPPING_H
#define MAPPING_H

#include "cache/cache.h"
#include "engine/engine.h"
#include "memory/frame.h"
#include "io/io.h"
#include "peer/export.h"
#include "cache/header.h"
#include "node/registry.h"

/* A backing store: where the contents of a segment may be. */
struct backing {
	struct store *store;     /* NULL: unused */
	uint64_t offset;         /* where the mapping begins in it */
	bool read;               /* false: segments that were never written read as zeros */
	struct lock *lock;       /* of the range that may be written; NULL: there is none */
};

/* Whether segments may still be in the older backing store, and how they migrate to the current one. Where both
 * overlap, writing one segment may overwrite another one: then they migrate in this order only, and nothing else is
 * written before. */
enum migration { MIGRATE_NONE, MIGRATE_ANY, MIGRATE_ASCENDING, MIGRATE_DESCENDING };

#define EXTENTS_MAX 40

/* An array of headers. Headers never move, because lists link them: a mapping that grows gets another array. */
struct extent {
	struct seg *segs;
	uint32_t *twins;         /* for each segment: 1 + the frame of its twin, or 0; NULL: the mapping has no twins (twin.c) */
	uint8_t *unsure;         /* ... and a bit for each byte whose write has failed */
	size_t first, count;
};

/* Counters of umstat. */
struct map_stat {
	_Atomic uint64_t read_faults, write_faults, upgrade_faults, spurious_faults;
	_Atomic uint64_t inactive_hits, readahead_hits, readahead_waste, readahead_loads, evictions;
	struct io_count io;
};

#define add(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)

/* What was written, and may not be durable (flush.c). */
struct flushing {
	_Atomic uint32_t turn;       /* one flush at a time */
	_Atomic bool due;            /* something was written since the last flush */
	_Atomic uint64_t generation; /* flushes that have begun */
	_Atomic uint64_t settled;    /* flushes that have ended: what they were for is durable, dirty again, or lost */
	_Atomic uint64_t failed;     /* flushes */
	_Atomic uint32_t lock;       /* around settled and left */
	uint64_t left[2];            /* bytes reclaimed while the generation was open, by its last bit */
	_Atomic uint64_t lost;       /* bytes for which a flush failed, and which cannot be written again */
	_Atomic int error;           /* ... its errno */
};

/* The state of a mapping whose writes fail, and for which stores wait (stall.c). */
struct stall {
	_Atomic int unreported;      /* errno of a failed write in the background that is to be reported */
	_Atomic bool waiting;        /* a store waits, or did since the background thread looked */
	size_t at;                   /* the segment from which on the background thread tries to write; its own */
	bool progress;               /* ... a write has succeeded since segment 0 */
	uint64_t next_try;           /* ms: ... not before */
	uint64_t failure_reported, wait_reported; /* ms, when the background thread last did; 0: not since a write succeeded */
};

#define STREAMS 8

/* A run of faults that follow one another (readahead.c). */
struct stream {
	size_t last;             /* the segment of its last fault */
	long stride;             /* segments from one fault to the next; 0: only one was seen */
	size_t until;            /* read ahead as far as this one */
	unsigned seen;           /* faults, counted up to a bound */
	size_t window;           /* segments */
	size_t began;            /* the segment of its first fault */
	uint64_t used;           /* when it was last continued */
};

/* Whether anything comes or goes (assemble.c); the background thread's. */
struct rest {
	uint64_t movements;      /* until its last look */
	size_t next;             /* the segment from which on to look for huge pages to assemble */
};

struct mapping {
	_Atomic uint32_t users;  /* threads and jobs that use it; outlives the mapping */
	char *range;
	const struct engine *engine; /* reports accesses to absent segments, and maps frames */
	size_t size;             /* bytes of the mapping */
	size_t seg_size;
	unsigned shift;          /* log2 of seg_size */
	size_t segs;             /* number of segments */
	bool writable;
	bool bulk;               /* neighbours are written together */
	bool shared;             /* other processes may reach its segments */
	_Atomic bool unsure;     /* some bit of extent.unsure is set */
	bool bus_when_full;      /* a store that would have to wait for storage raises SIGBUS */
	_Atomic int write_error; /* errno of the last write, if it failed */
	bool writers;            /* other mappings write to its bytes, too: a dirty segment has a twin (twin.c) */
	struct export export;    /* what other processes see, if `shared` */
	struct extent extents[EXTENTS_MAX];
	unsigned extents_used;
	_Atomic uint64_t *touched; /* a bit for each group of segments of which one was ever valid */
	_Atomic uint64_t *dirty;   /* ... and of which one may be dirty */
	size_t marks_len;
	struct backing backings[SEG_BACKINGS];
	unsigned current;        /* the backing store that is written; segments of the older one count as dirty */
	_Atomic enum migration migration;
	bool in_place;           /* the mapped range is the store: no segment is ever valid (inplace.c) */
	uint64_t placed;         /* ... since then: a number of its own in this process */
	_Atomic size_t pagecached; /* segments mapped from the page cache (SEG_PAGECACHE) */
	size_t next_look;        /* the segment at which the background thread continues to check them */
	_Atomic bool poisoned;   /* places were poisoned (SEG_POISONED) since the last check */
	_Atomic int load_error;  /* ... the errno of the last one */
	_Atomic uint64_t persisted; /* ms: when a mapping in place was last made durable as a whole */
	_Atomic uint64_t stored; /* bytes of the mapping that are in the store: zeros beyond need not be written */
	struct member member;
	_Atomic size_t pinned;   /* bytes */
	_Atomic int error;       /* of a write in the background, not reported yet */
	struct flushing flush;
	struct stall stall;
	_Atomic uint32_t scan_lock; /* one scan of the marks at a time */
	_Atomic uint32_t frozen; /* new users wait */
	_Atomic uint32_t cleaners; /* jobs that write its dirty inactive segments */
	_Atomic int advice;
	_Atomic uint32_t stream_lock;
	_Atomic uint32_t take_lock; /* while readahead takes the frames of a cluster */
	struct stream streams[STREAMS];
	uint64_t stream_clock;
	_Atomic size_t ahead_lost; /* by how many segments the readahead window is reduced (readahead.c) */
	_Atomic uint64_t wanted_until; /* runs leave nothing behind before this time of the account's clock (recycle.c) */
	struct map_stat stat;
	struct rest rest;
	bool blank;              /* UMMAP_BLANK, or ummap's read_file 0 */
	int flush_interval;      /* seconds; 0: never */
	char name[REGISTRY_NAME_LEN]; /* of the store, for people: its end, if it is long */
	_Atomic uint32_t sync_lock; /* held to migrate in order, or to close the older backing store */
	struct mapping *next_free;
};

#define MARK_SHIFT 6 /* 64 segments a bit */

/* Sets up headers and marks for a mapping whose mapped range, size and seg_size are given. 0 or -errno. */
int map_create(struct mapping *map);
void map_destroy(struct mapping *map);
/* Makes room for more segments (or fewer); lists stay whole. Nobody else may use the mapping. */
int map_resize(struct mapping *map, size_t size);

/* Takes a use of the mapping: until map_leave it is neither changed nor ended. false: it is frozen, nothing was
 * taken. */
bool map_enter(struct mapping *map);
void map_leave(struct mapping *map);
/* The caller, which has a use of the mapping, becomes its only user: new users wait until it is thawed. false: another
 * thread is freezing it; the caller must give up its use. */
bool map_freeze(struct mapping *map);
void map_thaw(struct mapping *map);
/* For the thread that froze it: waits until it is the only user again. */
void map_quiesce(struct mapping *map);
/* Waits until a frozen mapping is thawed (or just a while). */
void map_wait(struct mapping *map);

/* Resets the segments from `first` on, none of which is valid, to the state of never having been touched. */
void map_reset(struct mapping *map, size_t first);

/* The extent that contains segment i. */
const struct extent *map_extent(const struct mapping *map, size_t i);
struct seg *map_seg(const struct mapping *map, size_t i);
size_t map_index(const struct mapping *map, const struct seg *s);

static inline struct mapping *map_of(struct member *m)
{
	return container_of(m, struct mapping, member);
}

/* The account to which its frames are charged. */
static inline struct account *map_account(const struct mapping *map)
{
	return map->member.group->account;
}

static inline enum frame_kind map_frames(const struct mapping *map)
{
	if (map->shared)
		return FRAME_SHARED;
	return map->engine->vma_each ? FRAME_MAPPED : map->engine->drops ? FRAME_COPIED : FRAME_PAGED;
}

/* Bytes of frames that a segment takes at most. */
static inline size_t map_hold(const struct mapping *map)
{
	return map->writers ? 2 * map->seg_size : map->seg_size;
}

static inline char *map_place(const struct mapping *map, size_t i)
{
	return map->range + (i << map->shift);
}

/* Bytes of segment i that belong to the mapping, and bytes of it that are mapped (whole pages). */
size_t map_len(const struct mapping *map, size_t i);
size_t map_place_len(const struct mapping *map, size_t i);
/* ... of n segments from i on. */
static inline size_t map_places_len(const struct mapping *map, size_t i, unsigned n)
{
	return ((size_t)(n - 1) << map->shift) + map_place_len(map, i + n - 1);
}

/*
 * A cluster: neighbours on one huge page of the mapped range whose frames are consecutive on one huge page in the pool,
 * too, with the same rights there. It moves by one call, and if it is all of both huge pages, as one entry of the page
 * tables. The number of segments is bounded, because their requests are on the stacks of signal handlers; 1: the
 * segments of the mapping move one by one.
 */
#define CLUSTER_MAX 32
static inline size_t map_cluster_size(const struct mapping *map)
{
	return map->engine->moves_huge ? max_size(min_size(CLUSTER_MAX, HUGE_PAGE >> map->shift), 1) : 1;
}

/* Locks the rest of a cluster from segment i on, which is list[0] and locked already, as long as each `fits` the first
 * one; at most `most`. Returns how many there are. */
unsigned map_lock_cluster(struct mapping *map, size_t i, struct seg **list, size_t most,
			bool (*fits)(const struct seg *first, const struct seg *s));
/* Unlocks all of them but the first. */
void map_unlock_cluster(const struct mapping *map, size_t i, struct seg **list, unsigned n);

/* Unlocks segment i. Where assertions are on: it is in one of the states of STATES.md. */
void map_unlock(const struct mapping *map, size_t i, struct seg *s);
/* Calls fn on each valid segment of [first, last), locked, until one call returns an error, which it then is. */
int map_for_valid(struct mapping *map, size_t first, size_t last, int (*fn)(struct mapping *, size_t, struct seg *));
/* Counts one more pinned segment, or one less. */
void map_count_pin(struct mapping *map, bool more);
void map_set_migration(struct mapping *map, enum migration how);
static inline bool map_in_order(const struct mapping *map)
{
	return map->migration >= MIGRATE_ASCENDING;
}

/* Called before VALID or DIRTY is cleared in a segment that the caller has locked: waits until no other process
 * accesses it. */
static inline void map_await(const struct mapping *map, const struct seg *s)
{
	export_await(&map->export, s);
}

/* Whether absent segment s is read from storage; otherwise it is zeros. */
bool map_reads(const struct mapping *map, const struct seg *s);
/* Marks segment i, which the caller has locked, as dirty; called before it can be stored to, because a sync of any
 * thread has to find it from the first store on. */
void map_mark_dirty(struct mapping *map, size_t i, struct seg *s);
/* Whether s has to be written before its backing store is complete. */
bool map_must_write(const struct mapping *map, const struct seg *s);
/* How many bytes of segment i, whose contents are in buf, have to be written: where that makes the store longer, not
 * beyond what the application wrote. */
size_t map_write_len(struct mapping *map, size_t i, const char *buf);

/* Marks, so that walks over a large mapping visit only what was used. */
void map_mark(_Atomic uint64_t *marks, size_t i);
/* The first segment from i on whose group is marked; map->segs if none. */
size_t map_next(const struct mapping *map, const _Atomic uint64_t *marks, size_t i);
/* Removes the mark of the group that begins at i. */
void map_unmark(_Atomic uint64_t *marks, size_t i);

#endif
