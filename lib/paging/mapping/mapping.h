/* SPDX-License-Identifier: BSD-3-Clause */
/* A mapping: its range, its segments, their backing stores, and marks for segments in use. */
#ifndef MAPPING_H
#define MAPPING_H

#include "cache/cache.h"
#include "engine/engine.h"
#include "memory/frame.h"
#include "io/io.h"
#include "peer/export.h"
#include "cache/header.h"
#include "node/registry.h"
#include "paging/residency/transfer_size.h"
#include "paging/tuning.h"

/* A backing store, which may have the contents of segments. */
struct backing {
	struct store *store;     /* store; NULL: unused */
	uint64_t offset;         /* offset in the store where the mapping begins */
	bool read;               /* whether segments that were never written are read; false: they
				    are zeros */
	struct lock *lock;       /* lock of the range that may be written; NULL: there is none */
};

/* Whether segments may be in the older backing store, and in which order they migrate to the
 * current one. If both ranges overlap, writing a segment may overwrite another one: then segments
 * migrate in this order only, and nothing else is written before. */
enum migration { MIGRATE_NONE, MIGRATE_ANY, MIGRATE_ASCENDING, MIGRATE_DESCENDING };

/* An array of headers. Headers never move, because lists link them: a mapping that grows gets
 * another array. */
struct extent {
	struct seg *segs;        /* headers */
	uint32_t *twins;         /* for each segment, 1 + the frame of its twin, or 0; NULL: the
				    mapping has no twins (twin.c) */
	uint32_t *copies;        /* for each segment, 1 + the frame of the copy that a commit needs,
				    or 0; NULL: the mapping had no commit yet (commit.c) */
	uint8_t *unsure;         /* a bit for each byte, which is set if its write has failed */
	size_t first, count;     /* number of the first segment, and number of segments */
};

/* Counters of umstat. */
struct map_stat {
	_Atomic uint64_t read_faults, write_faults, upgrade_faults, spurious_faults;
	_Atomic uint64_t inactive_hits, readahead_hits, readahead_waste, readahead_loads, evictions;
	struct io_count io;
};

#define add(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)

/*
 * The four structures that follow belong to the folders of lib/paging: only the files of a folder
 * name the fields of its structure (tests/check-layers). Other files call its functions.
 */

/* paging/mapping: the life of a mapping. */
struct map_life {
	_Atomic uint32_t users;  /* threads and jobs that use the mapping; valid after its end,
				    too */
	_Atomic uint32_t frozen; /* whether new users wait */
	struct mapping *next_free; /* next structure without a mapping (lookup.c) */
	struct extent extents[MAX_EXTENTS];
	unsigned extents_used;
	_Atomic uint64_t *touched; /* a bit for each group of segments, set if one was ever valid */
	_Atomic uint64_t *dirty;   /* a bit for each group, set if a segment may be dirty */
	size_t marks_len;          /* bytes of each of the two arrays */
	_Atomic size_t pinned;     /* bytes of pinned segments and their twins */
	_Atomic uint64_t stored;   /* bytes of the mapping that the store has: zeros beyond it need
				      not be written */
	uint64_t placed;           /* number in this process of the mapping in place (inplace.c) */
	_Atomic uint64_t persisted;/* ms: when a mapping in place was last made durable as a
				      whole */
};

/* paging/fault, stall.c: stores that wait because writes fail. Times are in ms. */
struct stall {
	_Atomic int unreported;    /* errno of a failed write in the background that is not
				      reported */
	_Atomic bool waiting;      /* whether a store waits, or has waited since the last look of
				      the background thread, which alone uses the fields below */
	size_t at;                 /* segment at which the next attempt to write begins */
	bool progress;             /* whether a write has succeeded since segment 0 */
	uint64_t next_try;         /* earliest time of the next attempt */
	uint64_t failure_reported, wait_reported; /* time of the last report; 0: none since a write
						     succeeded */
};

/* paging/fault */
struct map_fault {
	_Atomic bool poisoned;     /* whether slots were poisoned (SEG_POISONED) since the last
				      check */
	_Atomic int load_error;    /* errno of the last failed load */
	struct stall stall;
};

/* A run of faults that follow one another (readahead.c). Numbers are of segments. */
struct stream {
	size_t last;               /* segment of the last fault */
	long stride;               /* distance between faults; 0: there was one fault so far */
	size_t until;              /* end of what was read ahead */
	unsigned seen;             /* number of faults, up to a bound */
	size_t window;             /* how far to read ahead */
	size_t began;              /* segment of the first fault */
	uint64_t used;             /* when it last continued (stream_clock) */
};

/* Segments that stay in one tier (tiering.c). Any thread may read them. */
struct tier_range {
	_Atomic size_t first, last; /* segments [first, last) */
	_Atomic unsigned tier;     /* their tier; tier_count: the entry is unused */
};

/* paging/residency */
struct map_residency {
	_Atomic int advice;        /* UMMAP_ADV_NORMAL, RANDOM or SEQUENTIAL */
	struct transfer_size transfer; /* neighbors that a fault brings in, if it has stamps */
	_Atomic bool *huge;        /* a mark for each block on a huge page (huge_blocks.c); NULL:
				      there are none */
	size_t huge_count;         /* number of these marks */
	_Atomic uint32_t stream_lock; /* protects the streams and their clock; and serializes the
					 reports of accesses (neighbors.c) */
	_Atomic uint32_t take_lock;/* held while readahead takes the frames of a cluster */
	struct stream streams[MAX_STREAMS];
	uint64_t stream_clock;
	_Atomic size_t ahead_lost; /* segments by which the readahead window is reduced
				      (readahead.c) */
	_Atomic uint64_t wanted_until; /* time of the account's clock before which runs leave
					  nothing behind (recycle.c) */
	_Atomic size_t missed[MAX_MISSED_CLUSTERS]; /* first segments, + 1, of clusters that are
					      to be dropped later (recycle.c); 0: none */
	_Atomic size_t pagecached; /* segments in page-cache mappings (SEG_PAGECACHE) */
	size_t next_look;          /* segment at which the background thread continues to check
				      them */
	uint64_t movements;        /* loads and evictions up to the last look of assemble.c */
	size_t next_assemble;      /* segment at which assemble.c continues */
	struct tier_range tier_ranges[MAX_TIER_RANGES]; /* changed under stream_lock */
	_Atomic unsigned tier_range_count;
};

/* paging/sync, sync.c: bytes that were written and may not be durable. */
struct flushing {
	_Atomic uint32_t turn;       /* held during a flush */
	_Atomic bool due;            /* whether anything was written since the last flush */
	_Atomic uint64_t generation; /* number of flushes that have begun */
	_Atomic uint64_t settled;    /* number of flushes that have ended: the bytes that they cover
					are durable, dirty again, or lost */
	_Atomic uint64_t failed;     /* number of failed flushes */
	_Atomic uint32_t lock;       /* protects settled and left */
	uint64_t left[2];            /* bytes reclaimed while the generation was open, by its last
					bit */
	_Atomic uint64_t lost;       /* bytes of failed flushes that cannot be written again */
	_Atomic int error;           /* errno of the last flush that lost bytes */
};

/* paging/sync */
struct map_sync {
	_Atomic uint32_t lock;     /* held to migrate in order, or to close the older backing
				      store */
	_Atomic uint32_t scan_lock;/* held during a scan of the dirty marks */
	_Atomic uint32_t cleaners; /* jobs that write dirty inactive segments */
	_Atomic int error;         /* errno of a write in the background that is not reported yet */
	_Atomic int write_error;   /* errno of the last write, if it failed */
	_Atomic bool unsure;       /* whether a bit of extent.unsure is set */
	struct umsync_handle *_Atomic commit; /* commit in flight (commit.c), or NULL */
	_Atomic int commit_error;  /* -errno of a write for the commit by a storing thread */
	_Atomic size_t commit_left;/* segments that the commit has yet to write */
	struct flushing flush;
};

struct mapping {
	/* Set when the mapping is made, and changed only while it is frozen. */
	char *range;             /* the mapped range */
	size_t size;             /* bytes of the mapping */
	size_t seg_size;         /* bytes of a segment */
	unsigned shift;          /* log2 of seg_size */
	size_t segs;             /* number of segments */
	const struct engine *engine; /* engine, which reports accesses to absent segments */
	struct frame_class *frames; /* class of the frames of segments and twins */
	unsigned tiers;          /* tiers that its frames may be in, a bit for each; 0: the process
				    has no tiers */
	bool writable;           /* whether the program may store to the mapping */
	bool bulk;               /* whether neighbours are written together */
	bool shared;             /* whether other processes may access its segments */
	bool writers;            /* whether other mappings write to its bytes, too: a dirty segment
				    has a twin (twin.c) */
	bool blank;              /* whether UMMAP_BLANK or ummap's read_file 0 was given */
	bool in_place;           /* whether the mapped range is the store: no segment is ever valid
				    (inplace.c) */
	struct shared_copy *copy; /* the node copy whose memory the mapped range has, if it is in
				    place (shared_copy.c); or NULL */
	bool bus_when_full;      /* whether a store that would have to wait for storage raises
				    SIGBUS */
	int flush_interval;      /* seconds; 0: never */
	size_t flush_rate;       /* bytes per second that a commit writes at most; 0: no limit */
	struct backing backings[SEG_BACKINGS];
	unsigned current;        /* the backing store that is written; segments of the older one
				    count as dirty */
	_Atomic enum migration migration; /* order of the migration from the older store */
	char name[REGISTRY_NAME_LEN]; /* name of the store in messages; the end of a long name */

	struct member member;    /* lists and account of its segments (cache/cache.h) */
	struct export export;    /* headers and memory that other processes see, if `shared` */
	struct map_stat stat;    /* counters */
	struct map_life life;
	struct map_fault fault;
	struct map_residency residency;
	struct map_sync sync;
};

/* Creates headers and marks for a mapping whose range, size and seg_size are set. Returns 0 or
 * -errno. */
int map_create(struct mapping *map);
void map_destroy(struct mapping *map);
/* Makes room for extent.copies, which takes no memory until an entry is set. The caller must be the
 * only user. Returns 0 or -errno. */
int map_make_copies(struct mapping *map);
/* Changes the number of segments; lists are kept. The caller must be the only user. Returns 0 or
 * -errno. */
int map_resize(struct mapping *map, size_t size);

/* Gives up a use. The structure remains valid: another thread that froze the mapping may have ended
 * it. */
static inline void map_leave(struct mapping *map)
{
	map->life.users--;
	if (map->life.frozen)
		futex_wake(&map->life.users, INT32_MAX);
}
/* Takes a use of the mapping: until map_leave it is neither changed nor ended. Returns false if the
 * mapping is frozen, and no use was taken. */
static inline bool map_enter(struct mapping *map)
{
	map->life.users++;
	if (!map->life.frozen)
		return true;
	map_leave(map);
	return false;
}
/* Takes another use, for a job; the caller has one. */
static inline void map_use(struct mapping *map)
{
	map->life.users++;
}
/* Whether a thread waits to be the only user: jobs should end soon. */
static inline bool map_is_frozen(const struct mapping *map)
{
	return map->life.frozen;
}
/* Makes the caller, which has a use of the mapping, its only user: new users wait until it is
 * thawed. Returns false if another thread freezes the mapping; the caller must give up its use. */
bool map_freeze(struct mapping *map);
void map_thaw(struct mapping *map);
/* For the thread that froze the mapping: waits until it is the only user again. */
void map_quiesce(struct mapping *map);
/* Waits until a frozen mapping is thawed, for 100 ms at most. */
void map_wait(struct mapping *map);

/* Resets the segments from `first` on, none of which is valid, as if they had never been
 * accessed. */
void map_reset(struct mapping *map, size_t first);

/* The extent that contains segment i. Each extent of a mapping that grew has more segments than all
 * before it, so the search from the last one on is short; and most mappings have one extent. */
const struct extent *map_find_extent(const struct mapping *map, size_t i);
static inline const struct extent *map_extent(const struct mapping *map, size_t i)
{
	return i < map->life.extents->count ? map->life.extents : map_find_extent(map, i);
}
static inline struct seg *map_seg(const struct mapping *map, size_t i)
{
	const struct extent *e = map_extent(map, i);

	return &e->segs[i - e->first];
}
/* The number of a segment of the mapping. */
size_t map_index(const struct mapping *map, const struct seg *s);

static inline struct mapping *map_of(struct member *m)
{
	return container_of(m, struct mapping, member);
}

/* The account to which frames of the mapping are charged. */
static inline struct account *map_account(const struct mapping *map)
{
	return map->member.group->account;
}

/* The places of frames for a fault that the calling thread serves. The memory of copied frames
 * comes with the copy, from the node of the thread that makes it. */
static inline unsigned map_places(const struct mapping *map)
{
	if (map->tiers)
		return map->tiers;
	return frames_are_copied(map->frames) ? 1 : 1u << place_of_thread();
}

/* Bytes of the frames that a segment needs at most. */
static inline size_t map_hold(const struct mapping *map)
{
	return map->writers ? 2 * map->seg_size : map->seg_size;
}

/* The slot of segment i. */
static inline char *map_slot(const struct mapping *map, size_t i)
{
	return map->range + (i << map->shift);
}

/* Bytes of segment i that belong to the mapping. */
static inline size_t map_len(const struct mapping *map, size_t i)
{
	return min_size(map->seg_size, map->size - (i << map->shift));
}
/* Bytes of the slot of segment i: whole pages. */
static inline size_t map_slot_len(const struct mapping *map, size_t i)
{
	size_t len = map_len(map, i);

	return len == map->seg_size ? len : round_up(len, sys_page());
}
/* The address of the contents of segment i, which is valid: in the pool or in its slot. */
static inline char *map_contents(const struct mapping *map, size_t i, const struct seg *s)
{
	return seg_has(s, SEG_INACTIVE) ? frame_addr(s->frame) : map_slot(map, i);
}
/* Bytes of the slots of n segments from segment i on. */
static inline size_t map_slots_len(const struct mapping *map, size_t i, unsigned n)
{
	return ((size_t)(n - 1) << map->shift) + map_slot_len(map, i + n - 1);
}

/*
 * A cluster: neighbors on one huge page of the mapped range whose frames are consecutive on one
 * huge page of the pool, and have the same rights there. A cluster moves by one call; if it is all
 * of both huge pages, by one entry of the page tables. With clusters of 1, segments move one by
 * one.
 */
static inline size_t map_cluster_size(const struct mapping *map)
{
	size_t n = frames_are_whole(map->frames) ? HUGE_PAGE >> map->shift : 1;

	return max_size(min_size(MAX_CLUSTER_SEGMENTS, n), 1);
}

/* Locks the cluster that begins with segment i, which is list[0] and locked: its segments as long
 * as each of them `fits` the first one, at most `max`. Returns their number. */
unsigned map_lock_cluster(struct mapping *map, size_t i, struct seg **list, size_t max,
			  bool (*fits)(const struct seg *first, const struct seg *s));
/* Unlocks all segments of the cluster but the first. */
void map_unlock_cluster(const struct mapping *map, size_t i, struct seg **list, unsigned n);

/* If assertions are on: checks that the state of segment i is in STATES.md. */
#ifdef NDEBUG
static inline void map_check_state(const struct mapping *map, size_t i, const struct seg *s)
{
	(void)map;
	(void)i;
	(void)s;
}
#else
void map_check_state(const struct mapping *map, size_t i, const struct seg *s);
#endif
static inline void map_unlock(const struct mapping *map, size_t i, struct seg *s)
{
	map_check_state(map, i, s);
	seg_unlock(s);
}
/* Locks segment i if `wanted` holds then. Returns false without the lock if it does not, even while
 * another thread has the lock: that thread may wait for the caller. */
bool map_lock_if(const struct mapping *map, size_t i, struct seg *s,
		 bool (*wanted)(const struct mapping *, size_t, const struct seg *));
/* Locks each valid segment of [first, last) and calls fn on it, until a call returns an error.
 * Returns that error or 0. */
int map_for_valid(struct mapping *map, size_t first, size_t last,
		  int (*fn)(struct mapping *, size_t, struct seg *));
/* Counts a segment, which has a frame, as pinned (more), or no longer. */
void map_count_pin(struct mapping *map, const struct seg *s, bool more);
void map_set_migration(struct mapping *map, enum migration how);
static inline bool map_in_order(const struct mapping *map)
{
	return map->migration >= MIGRATE_ASCENDING;
}

/* Waits until no other process accesses the segment, which the caller has locked. Must be called
 * before VALID or DIRTY is cleared. */
static inline void map_await(const struct mapping *map, const struct seg *s)
{
	export_wait(&map->export, s);
}

/* Whether absent segment s is read from storage; otherwise it is zeros. */
static inline bool map_reads(const struct mapping *map, const struct seg *s)
{
	return seg_has(s, SEG_STORED) || map->backings[seg_backing(s)].read;
}
/* Marks segment i, which the caller has locked, as dirty. Must be called before the program can
 * store to it: a sync of any thread must find the segment from the first store on. */
void map_mark_dirty(struct mapping *map, size_t i, struct seg *s);
/* Whether segment s must be written before its backing store is complete. */
static inline bool map_must_write(const struct mapping *map, const struct seg *s)
{
	return seg_has(s, SEG_DIRTY) || seg_backing(s) != map->current;
}
/* The number of bytes of segment i, whose contents are in buf, that must be written. If this makes
 * the store longer, bytes beyond those that the program has stored are left out. */
size_t map_write_len(struct mapping *map, size_t i, const char *buf);

/*
 * Marks for groups of segments: a walk over a large mapping visits only segments that were used.
 * map_next_touched and map_next_dirty return the first segment from i on whose group is marked, or
 * map->segs.
 */
static inline void map_set_mark(_Atomic uint64_t *marks, size_t i)
{
	size_t group = i >> MARK_GROUP_SHIFT;
	uint64_t bit = 1ull << (group & 63);

	/* The change to the head must be visible before the mark is read: a thread that removes the
	 * mark reads the heads next. */
	atomic_thread_fence(memory_order_seq_cst);
	/* Usually the mark is set already: reading it leaves the cache line shared. */
	if (!(atomic_load_explicit(&marks[group / 64], memory_order_relaxed) & bit))
		atomic_fetch_or(&marks[group / 64], bit);
}
static inline void map_touch(struct mapping *map, size_t i)
{
	map_set_mark(map->life.touched, i);
}
static inline void map_note_dirty(struct mapping *map, size_t i)
{
	map_set_mark(map->life.dirty, i);
}
size_t map_next_marked(const struct mapping *map, const _Atomic uint64_t *marks, size_t i);
static inline size_t map_next_touched(const struct mapping *map, size_t i)
{
	return map_next_marked(map, map->life.touched, i);
}
static inline size_t map_next_dirty(const struct mapping *map, size_t i)
{
	return map_next_marked(map, map->life.dirty, i);
}
/* Removes the dirty mark of the group that begins at segment i. */
static inline void map_forget_dirty(struct mapping *map, size_t i)
{
	size_t group = i >> MARK_GROUP_SHIFT;

	atomic_fetch_and(&map->life.dirty[group / 64], ~(1ull << (group & 63)));
	atomic_thread_fence(memory_order_seq_cst);
}

/* The number of bytes of a mapping of `size` bytes at `offset` that the store has. */
uint64_t map_stored_in(struct store *store, uint64_t offset, size_t size);
/* Records that the store has the bytes of the mapping up to `end`, which were written. */
void map_extend_stored(struct mapping *map, uint64_t end);
static inline size_t map_pinned_bytes(const struct mapping *map)
{
	return map->life.pinned;
}

#endif
