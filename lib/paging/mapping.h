/* SPDX-License-Identifier: BSD-3-Clause */
/* A mapping: its range, its segments and where each stands in storage, and which were ever touched. */
#ifndef MAPPING_H
#define MAPPING_H

#include "cache/cache.h"
#include "engine/engine.h"
#include "memory/frame.h"
#include "io/io.h"
#include "peer/export.h"
#include "cache/header.h"
#include "node/registry.h"

/* What the contents of a segment may be in. */
struct backing {
	struct store *store;     /* NULL: unused */
	uint64_t offset;         /* where the mapping begins in it */
	bool read;               /* false: what was never written reads as zeros */
	struct lock *lock;       /* of the range that may be written; NULL: there is none */
};

/* Whether segments may be of the older backing store, and how they become the current one's. Where the places of both overlap,
 * writing one segment may destroy another one's: only in this order, and nothing else is written until all have. */
enum migration { MIGRATE_NONE, MIGRATE_ANY, MIGRATE_ASCENDING, MIGRATE_DESCENDING };

#define EXTENTS_MAX 40

/* Headers never move, because lists link them: a mapping that grows gets another array. */
struct extent {
	struct seg *segs;
	uint32_t *twins;         /* of each: the number of its twin's frame and one, or 0; NULL: the mapping has none (twin.c) */
	uint8_t *unsure;         /* ... and a bit for each byte of which a write has failed */
	size_t first, count;
};

/* Counters of umstat. */
struct map_stat {
	_Atomic uint64_t read_faults, write_faults, upgrade_faults, spurious_faults;
	_Atomic uint64_t standby_hits, ahead_hits, ahead_waste, ahead_loads, evictions;
	struct io_count io;
};

#define add(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)

/* What was written, and is not sure to be durable (flush.c). */
struct flushing {
	_Atomic uint32_t turn;       /* one flush at a time */
	_Atomic bool due;            /* something was written since the last flush */
	_Atomic uint64_t generation; /* flushes that have begun */
	_Atomic uint64_t settled;    /* and those that have ended: what they were for is durable, dirty again, or lost */
	_Atomic uint64_t failed;     /* flushes */
	_Atomic uint32_t lock;       /* around settled and left */
	uint64_t left[2];            /* bytes, by the last bit of the generation, that left memory while it was open */
	_Atomic uint64_t lost;       /* bytes that a flush failed for, and that nobody can write again */
	_Atomic int error;           /* ... its errno */
};

#define STREAMS 8

/* A run of faults that follow one another (readahead.c). */
struct stream {
	size_t last;             /* where it stands */
	long stride;             /* segments from one fault to the next; 0: only one was seen */
	size_t until;            /* read ahead as far as this one */
	unsigned seen;           /* faults, as far as they matter */
	size_t window;           /* segments */
	uint64_t used;           /* when it was last continued */
};

struct mapping {
	_Atomic uint32_t users;  /* threads and jobs that work on it; survives the mapping */
	char *range;
	const struct engine *engine;      /* how accesses to what is absent are noticed, and frames mapped */
	size_t size;             /* bytes of the mapping */
	size_t seg_size;
	unsigned shift;          /* log2 of seg_size */
	size_t segs;             /* number of segments */
	bool writable;
	bool bulk;               /* neighbours are written together */
	bool shared;             /* other processes may reach its segments */
	_Atomic bool unsure;     /* some bytes are (extent.unsure) */
	bool writers;            /* others write to its bytes, too: a segment that is dirty has a twin (twin.c) */
	struct export export;    /* ... by this */
	struct extent extents[EXTENTS_MAX];
	unsigned extents_used;
	_Atomic uint64_t *touched; /* a bit for each group of segments of which one was ever valid */
	_Atomic uint64_t *dirty;   /* ... of which one may be dirty */
	size_t marks_len;
	struct backing backings[SEG_BACKINGS];
	unsigned current;        /* the backing store that changes go to; segments of the older one count as dirty */
	_Atomic enum migration migration;
	bool in_place;           /* the mapped range is the store: no segment is ever valid (inplace.c) */
	_Atomic size_t pagecached;     /* segments (SEG_PAGECACHE) */
	_Atomic unsigned stretches; /* ... were mapped from the page cache in so many runs, since none was */
	size_t next_look;        /* the background thread looks after those from this one on */
	_Atomic bool poisoned;     /* places are (SEG_POISONED), since it was last looked */
	_Atomic int load_error;  /* ... for this reason, the last one of them */
	_Atomic uint64_t persisted; /* ms: when all that is in place was last made durable */
	_Atomic uint64_t stored; /* bytes of the mapping that are in the store: what lies behind may be trimmed */
	struct member member;
	_Atomic size_t pinned;   /* bytes */
	_Atomic int error;       /* of a write in the background, not told yet */
	struct flushing flush;
	_Atomic uint32_t scan_lock; /* one scan of the marks at a time */
	_Atomic uint32_t frozen; /* newcomers wait */
	_Atomic uint32_t cleaners; /* jobs that write its dirty inactive segments */
	_Atomic int advice;
	_Atomic uint32_t stream_lock;
	_Atomic uint32_t take_lock; /* who reads ahead takes frames */
	struct stream streams[STREAMS];
	uint64_t stream_clock;
	_Atomic size_t ahead_lost; /* segments by which a run is read ahead less far (readahead.c) */
	struct map_stat stat;
	bool blank;              /* UMMAP_BLANK, or ummap's read_file 0 */
	int flush_interval;      /* seconds; 0: never */
	char name[REGISTRY_NAME_LEN]; /* of the store, for people: its end, if it is long */
	_Atomic uint32_t sync_lock; /* one at a time completes what has an order, or closes the older backing store */
	struct mapping *next_free;
};

#define MARK_SHIFT 6 /* 64 segments a bit */

/* Sets up headers and marks for a mapping whose mapped range, size and seg_size are given. 0 or -errno. */
int map_create(struct mapping *map);
void map_destroy(struct mapping *map);
/* Makes room for more segments (or fewer); lists stay whole. Nobody else may use the mapping. */
int map_resize(struct mapping *map, size_t size);

/* While somebody uses a mapping it is neither changed nor ended. false: it is frozen, nothing was taken. */
bool map_enter(struct mapping *map);
void map_leave(struct mapping *map);
/* The caller, who uses the mapping, becomes its only user: newcomers wait until it is thawed. false: somebody
 * else is about to; the caller must give up its use. */
bool map_freeze(struct mapping *map);
void map_thaw(struct mapping *map);
/* For who froze it: waits until it is the only user once more. */
void map_quiesce(struct mapping *map);
/* Waits until a frozen mapping is thawed (or just a while). */
void map_wait(struct mapping *map);

/* Segments from `first` on, none of which is valid, are as if never touched. */
void map_reset(struct mapping *map, size_t first);

/* The extent that segment i is of. */
const struct extent *map_extent(const struct mapping *map, size_t i);
struct seg *map_seg(const struct mapping *map, size_t i);
size_t map_index(const struct mapping *map, const struct seg *s);

static inline struct mapping *map_of(struct member *m)
{
	return container_of(m, struct mapping, member);
}

/* What its frames are charged to. */
static inline struct account *map_account(const struct mapping *map)
{
	return map->member.group->account;
}

static inline enum frame_kind map_frames(const struct mapping *map)
{
	return map->shared ? FRAME_SHARED : map->engine->vma_each ? FRAME_MAPPED : FRAME_PAGED;
}

/* Bytes that a segment takes at most. */
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
 * A cluster: neighbours on one huge page of the mapped range whose frames stand in a row on one huge page in the pool, too, with the
 * same rights there. It moves by one call, and if it is all of both, as one entry of the page tables. Smaller segments
 * come in clusters of so many, because their requests are on the stacks of signal handlers; 1: all of the mapping's segments
 * move by themselves.
 */
#define CLUSTER_MAX 32
static inline size_t map_cluster_size(const struct mapping *map)
{
	return map->engine->moves_huge ? max_size(min_size(CLUSTER_MAX, HUGE_PAGE >> map->shift), 1) : 1;
}

/* Locks the rest of a cluster from segment i on, which is list[0] and locked already, as far as each `fits` that one; `most`
 * at most. Says how many there are. */
unsigned map_lock_cluster(struct mapping *map, size_t i, struct seg **list, size_t most,
			bool (*fits)(const struct seg *first, const struct seg *s));
/* Unlocks all of them but the first. */
void map_unlock_cluster(const struct mapping *map, size_t i, struct seg **list, unsigned n);

/* Unlocks segment i. Where assertions are on: it is in one of the states of STATES.md. */
void map_unlock(const struct mapping *map, size_t i, struct seg *s);
/* Calls fn on each valid segment of [first, last), locked, until one call returns an error, which it then is. */
int map_for_valid(struct mapping *map, size_t first, size_t last, int (*fn)(struct mapping *, size_t, struct seg *));
/* One segment more is pinned, or one less. */
void map_count_pin(struct mapping *map, bool more);
void map_set_migration(struct mapping *map, enum migration how);
static inline bool map_in_order(const struct mapping *map)
{
	return map->migration >= MIGRATE_ASCENDING;
}

/* Bytes that are pinned, in all mappings. */
size_t map_pinned(void);
/* In a forked child: nothing is pinned. */
void map_forget_pins(void);

/* Before VALID or DIRTY is taken from a segment that the caller has locked: waits until no other process is in it. */
static inline void map_await(const struct mapping *map, const struct seg *s)
{
	export_await(&map->export, s);
}

/* Whether segment s, absent, has its contents in storage; else they are zeros. */
bool map_reads(const struct mapping *map, const struct seg *s);
/* Segment i, which the caller has locked, counts as dirty: before it can be stored to, because from the first store
 * on a sync of any thread has to find it. */
void map_mark_dirty(struct mapping *map, size_t i, struct seg *s);
/* Whether s has to be written before its backing store is complete. */
bool map_must_write(const struct mapping *map, const struct seg *s);
/* How many bytes of segment i, which stands in buf, have to be written: never past what the application
 * wrote where that makes the store longer. */
size_t map_write_len(struct mapping *map, size_t i, const char *buf);

/* Marks, so that walks over a large mapping only visit what was used. */
void map_mark(_Atomic uint64_t *marks, size_t i);
/* The first segment from i on whose group is marked; set->segs if none. */
size_t map_next(const struct mapping *map, const _Atomic uint64_t *marks, size_t i);
/* Takes the mark off the group that begins at i. */
void map_unmark(_Atomic uint64_t *marks, size_t i);

#endif
