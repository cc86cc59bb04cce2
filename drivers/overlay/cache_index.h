/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The index of the filter cache+: which slot of the near file has which block, and which clean slot
 * is evicted next. A block has at most one dirty and one clean slot.
 *
 * EVICTION of clean slots follows S3-FIFO. New slots enter a small queue. Slots that were read
 * again there, and slots of blocks that left the small queue recently (ghosts), enter the main
 * queue. A scan passes through the small queue only.
 *
 * All memory is mapped on opening. All calls but init and end need the lock of the overlay.
 */
#ifndef DRIVERS_CACHE_INDEX_H
#define DRIVERS_CACHE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_NO_SLOT UINT32_MAX
#define CACHE_NO_KEY UINT64_MAX
#define CACHE_MAX_FREQ 3

enum cache_list {
	CACHE_SMALL, CACHE_MAIN,       /* clean */
	CACHE_DIRTY,                   /* in the order in which the slots became dirty */
	CACHE_LISTS
};

struct cache_slot {
	uint64_t key;                  /* 2 * block, plus 1 if dirty; CACHE_NO_KEY: in no list */
	uint32_t chain;                /* next slot of the bucket */
	uint32_t next, prev;           /* neighbors in the list */
	uint32_t since;                /* dirty: second in which the slot became so */
	uint16_t writers;              /* dirty: number of threads that write the block */
	uint8_t list : 2;              /* an enum cache_list */
	uint8_t freq : 2;              /* number of reads in the queue, up to CACHE_MAX_FREQ */
	uint8_t flying : 1;            /* dirty: whether the block is being written back */
	uint8_t rewritten : 1;         /* dirty: whether it was written since that began */
};

struct cache_queue {
	uint32_t first, last;
	_Atomic uint32_t count;        /* may be read without the lock */
};

struct cache_index {
	uint32_t nslots;
	struct cache_slot *slots;
	uint32_t *buckets;             /* first slots of chains */
	uint32_t nbuckets;             /* a power of two */
	uint32_t *ghosts;              /* hashes of blocks with times */
	uint32_t nghosts;
	uint64_t ghost_clock;          /* number of ghosts that were added */
	struct cache_queue lists[CACHE_LISTS];
	void *memory;
	size_t bytes;
};

/* Returns 0 or -ENOMEM. */
int cache_index_init(struct cache_index *ix, uint32_t nslots);
void cache_index_end(struct cache_index *ix);

static inline bool cache_is_dirty(const struct cache_index *ix, uint32_t s)
{
	return ix->slots[s].list == CACHE_DIRTY;
}

/* Finds the slot of a block, or CACHE_NO_SLOT. */
uint32_t cache_find(const struct cache_index *ix, uint64_t block, bool dirty);
/* Adds a slot for a block, which has none of this kind. */
void cache_add(struct cache_index *ix, uint32_t s, uint64_t block, bool dirty, uint32_t now);
/* Notes a read. */
void cache_hit(struct cache_index *ix, uint32_t s);
/* Removes a slot that is not evicted. If its block comes back soon, it returns to the main queue if
 * it was there. */
void cache_unlist(struct cache_index *ix, uint32_t s);
/* Makes a dirty slot the newest one of the dirty slots. */
void cache_stay_dirty(struct cache_index *ix, uint32_t s, uint32_t now);
/* Makes a dirty slot clean. Its block has no clean slot. */
void cache_make_clean(struct cache_index *ix, uint32_t s);
/* Removes the clean slot that is evicted next, or returns CACHE_NO_SLOT. */
uint32_t cache_evict(struct cache_index *ix);

#endif
