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
#include "paging/tuning.h"

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

/*
 * The four structures that follow belong to the folders of lib/paging: only the files of a folder
 * name the fields of its structure (tests/check-layers). Other files call its functions.
 */

/* paging/mapping: the life of a mapping. */
struct map_life {
	_Atomic uint32_t users;  /* threads and jobs that use the mapping; remains valid after its end */
	_Atomic uint32_t frozen; /* whether new users wait */
	struct mapping *next_free; /* lookup.c */
	struct extent extents[MAX_EXTENTS];
	unsigned extents_used;
	_Atomic uint64_t *touched; /* a bit for each group of segments of which one was ever valid */
	_Atomic uint64_t *dirty;   /* a bit for each group of which a segment may be dirty */
	size_t marks_len;          /* bytes of each of the two arrays */
	_Atomic size_t pinned;     /* bytes */
	_Atomic uint64_t stored;   /* bytes of the mapping that the store has: zeros beyond it need
				      not be written */
	uint64_t placed;           /* number in this process of the mapping in place (inplace.c) */
	_Atomic uint64_t persisted;/* ms: when a mapping in place was last made durable as a whole */
};

/* paging/fault, stall.c: writes fail, and stores wait for that. Times are in ms. */
struct stall {
	_Atomic int unreported;    /* errno of a failed write in the background that is not reported */
	_Atomic bool waiting;      /* whether a store waits, or has waited since the last look of the
				      background thread, which alone uses the fields below */
	size_t at;                 /* segment at which the next attempt to write begins */
	bool progress;             /* whether a write has succeeded since segment 0 */
	uint64_t next_try;         /* earliest time of the next attempt */
	uint64_t failure_reported, wait_reported; /* time of the last report; 0: none since a write
						     succeeded */
};

/* paging/fault */
struct map_fault {
	_Atomic bool poisoned;     /* whether slots were poisoned (SEG_POISONED) since the last check */
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

/* paging/residency */
struct map_residency {
	_Atomic int advice;        /* UMMAP_ADV_NORMAL, RANDOM or SEQUENTIAL */
	_Atomic uint32_t stream_lock; /* protects the streams and their clock */
	_Atomic uint32_t take_lock;/* held while readahead takes the frames of a cluster */
	struct stream streams[MAX_STREAMS];
	uint64_t stream_clock;
	_Atomic size_t ahead_lost; /* segments by which the readahead window is reduced (readahead.c) */
	_Atomic uint64_t wanted_until; /* time of the account's clock before which runs leave nothing
					  behind (recycle.c) */
	_Atomic size_t missed[MAX_MISSED]; /* first segments, + 1, of clusters that could not be
					      dropped behind a run (readahead.c); 0: none */
	_Atomic size_t pagecached; /* segments in page-cache mappings (SEG_PAGECACHE) */
	size_t next_look;          /* segment at which the background thread continues to check them */
	uint64_t movements;        /* loads and evictions up to the last look of assemble.c */
	size_t next_assemble;      /* segment at which assemble.c continues */
};

/* paging/sync, flush.c: what was written and may not be durable. */
struct flushing {
	_Atomic uint32_t turn;       /* held during a flush */
	_Atomic bool due;            /* whether anything was written since the last flush */
	_Atomic uint64_t generation; /* number of flushes that have begun */
	_Atomic uint64_t settled;    /* number of flushes that have ended: the bytes that they cover
					are durable, dirty again, or lost */
	_Atomic uint64_t failed;     /* number of failed flushes */
	_Atomic uint32_t lock;       /* protects settled and left */
	uint64_t left[2];            /* bytes reclaimed while the generation was open, by its last bit */
	_Atomic uint64_t lost;       /* bytes of failed flushes that cannot be written again */
	_Atomic int error;           /* errno of the last flush that lost bytes */
};

/* paging/sync */
struct map_sync {
	_Atomic uint32_t lock;     /* held to migrate in order, or to close the older backing store */
	_Atomic uint32_t scan_lock;/* held during a scan of the dirty marks */
	_Atomic uint32_t cleaners; /* jobs that write dirty inactive segments */
	_Atomic int error;         /* errno of a write in the background that is not reported yet */
	_Atomic int write_error;   /* errno of the last write, if it failed */
	_Atomic bool unsure;       /* whether a bit of extent.unsure is set */
	struct flushing flush;
};

struct mapping {
	/* Set when the mapping is made, and changed only while it is frozen. */
	char *range;             /* the mapped range */
	size_t size;             /* bytes of the mapping */
	size_t seg_size;         /* bytes of a segment */
	unsigned shift;          /* log2 of seg_size */
	size_t segs;             /* number of segments */
	const struct engine *engine; /* reports accesses to absent segments, and maps frames */
	struct frame_class *frames; /* the frames of its segments and twins */
	bool writable;
	bool bulk;               /* whether neighbours are written together */
	bool shared;             /* whether other processes may reach its segments */
	bool writers;            /* whether other mappings write to its bytes, too: a dirty segment
				    has a twin (twin.c) */
	bool blank;              /* UMMAP_BLANK, or ummap's read_file 0 */
	bool in_place;           /* whether the mapped range is the store: no segment is ever valid
				    (inplace.c) */
	bool bus_when_full;      /* whether a store that would have to wait for storage raises SIGBUS */
	int flush_interval;      /* seconds; 0: never */
	struct backing backings[SEG_BACKINGS];
	unsigned current;        /* the backing store that is written; segments of the older one
				    count as dirty */
	_Atomic enum migration migration;
	char name[REGISTRY_NAME_LEN]; /* of the store, for people: its end, if it is long */

	struct member member;    /* lists and account of its segments (cache/cache.h) */
	struct export export;    /* what other processes see, if `shared` */
	struct map_stat stat;
	struct map_life life;
	struct map_fault fault;
	struct map_residency residency;
	struct map_sync sync;
};

/* Sets up headers and marks for a mapping whose mapped range, size and seg_size are given. 0 or -errno. */
int map_create(struct mapping *map);
void map_destroy(struct mapping *map);
/* Makes room for more segments (or fewer); lists stay whole. Nobody else may use the mapping. */
int map_resize(struct mapping *map, size_t size);

/* Takes a use of the mapping: until map_leave it is neither changed nor ended. false: it is frozen, nothing was
 * taken. */
bool map_enter(struct mapping *map);
/* Takes another use, for a job; the caller has one. */
static inline void map_use(struct mapping *map)
{
	map->life.users++;
}
/* Whether a thread waits to be the only user: jobs end soon then. */
static inline bool map_is_frozen(const struct mapping *map)
{
	return map->life.frozen;
}
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
static inline size_t map_cluster_size(const struct mapping *map)
{
	size_t n = frames_are_whole(map->frames) ? HUGE_PAGE >> map->shift : 1;

	return max_size(min_size(MAX_CLUSTER_SEGMENTS, n), 1);
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

/*
 * Marks for groups of segments, so that walks over a large mapping visit only the segments that were
 * used. map_next_touched and map_next_dirty return the first segment from i on whose group is
 * marked, or map->segs.
 */
void map_touch(struct mapping *map, size_t i);
size_t map_next_touched(const struct mapping *map, size_t i);
void map_note_dirty(struct mapping *map, size_t i);
size_t map_next_dirty(const struct mapping *map, size_t i);
/* Removes the mark `dirty` of the group that begins at i. */
void map_forget_dirty(struct mapping *map, size_t i);

/* Bytes that the store has of a mapping of `size` bytes at `offset`. */
uint64_t map_stored_in(struct store *store, uint64_t offset, size_t size);
/* The store has the mapping's bytes up to `end`, which were written. */
void map_extend_stored(struct mapping *map, uint64_t end);
static inline size_t map_pinned_bytes(const struct mapping *map)
{
	return map->life.pinned;
}

#endif
