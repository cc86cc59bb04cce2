/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What of the far store is in which place of the near file: the index of the filter cache+, in memory. The near file has room
 * for a number of blocks, its slots. A slot is free, or has sectors of one block: clean ones, which the far store has too, or
 * dirty ones, which it has not. A block has at most one slot of each kind, and a sector is in at most one of them.
 *
 * EVICTION of clean slots is S3-FIFO: a small queue, through which what is read once passes quickly, and a main one, for what
 * was read again there, or comes back soon after it had left (the ghosts). A scan goes through the small queue only.
 *
 * A slot that was given up is not used again before the near file says durably that it is empty: a record of it on disk would
 * speak of other bytes. So it is `freeing` until a pass of cache_near.c has written its record.
 *
 * Less than 64 bytes a slot, all of it mmap(2)ed at opening. All calls want the lock, but for init and end; it is a leaf, and
 * nothing waits under it.
 */
#ifndef DRIVERS_CACHE_INDEX_H
#define DRIVERS_CACHE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_SECTORS 128              /* of a block: a bit each */
#define CACHE_NO_SLOT UINT32_MAX
#define CACHE_NO_KEY UINT64_MAX
#define CACHE_FREQ_MAX 3

typedef unsigned __int128 cache_mask;  /* sectors of a block */

enum cache_list {
	CACHE_FREE,                    /* empty, and may be used */
	CACHE_FREEING,                 /* empty, and its record is not */
	CACHE_SMALL, CACHE_MAIN,       /* clean */
	CACHE_DIRTY,                   /* the one that is longest so comes first */
	CACHE_LISTS,
	CACHE_PRIVATE                  /* somebody fills it */
};

struct cache_slot {
	uint64_t key;                  /* number of the block, times two, plus 1 for dirty; CACHE_NO_KEY: empty */
	uint64_t valid[2];             /* sectors that are there */
	uint64_t sum;                  /* of the record that was written last */
	uint32_t chain;                /* the next one of its bucket */
	uint32_t next, prev;           /* of its list */
	uint32_t since;                /* dirty: the second in which it became so */
	uint16_t pins;                 /* so many read or write its bytes */
	uint16_t writers;              /* dirty: so many write them */
	uint8_t list : 3;
	uint8_t freq : 2;              /* how often it was read in its queue, up to CACHE_FREQ_MAX */
	uint8_t copy : 1;              /* which of its two records counts */
	uint8_t flying : 1;            /* dirty: on its way to the far store ... */
	uint8_t rewritten : 1;         /* ... and written since */
};

_Static_assert(sizeof(struct cache_slot) <= 56, "with buckets, ghosts and bits, 64 bytes a slot");

struct cache_index {
	_Atomic uint32_t lock;
	uint32_t slots;
	struct cache_slot *slot;
	uint32_t *bucket;              /* first slots of chains */
	uint32_t buckets;              /* a power of two, not more than slots */
	uint32_t *ghost;               /* keys that left the small queue: hashes with the time */
	uint32_t ghosts;               /* how many there can be */
	uint64_t ghost_clock;          /* goes up by one with each */
	_Atomic uint64_t *changed;     /* bits: the record on disk is not what the slot is */
	uint64_t *taken;               /* bits: a pass writes its record */
	struct cache_queue {
		uint32_t first, last;
		_Atomic uint32_t count;        /* is looked at without the lock, too */
	} list[CACHE_LISTS];
	void *memory;
	size_t bytes;
};

/* 0, or -ENOMEM. All slots are free. */
int cache_index_init(struct cache_index *ix, uint32_t slots);
void cache_index_end(struct cache_index *ix);

static inline cache_mask cache_valid(const struct cache_slot *s)
{
	return (cache_mask)s->valid[1] << 64 | s->valid[0];
}

static inline bool cache_is_clean(const struct cache_index *ix, uint32_t s)
{
	return ix->slot[s].list == CACHE_SMALL || ix->slot[s].list == CACHE_MAIN;
}

/* n sectors from `first` on. */
static inline cache_mask cache_mask_of(unsigned first, unsigned n)
{
	return (n == CACHE_SECTORS ? ~(cache_mask)0 : ((cache_mask)1 << n) - 1) << first;
}

/* Sectors from `first` on, at most n, that are all in the mask, or all not. */
static inline unsigned cache_mask_run(cache_mask mask, unsigned first, unsigned n)
{
	bool is = mask >> first & 1;
	unsigned k = 1;

	while (k < n && (bool)(mask >> (first + k) & 1) == is)
		k++;
	return k;
}

void cache_mark_changed(struct cache_index *ix, uint32_t s);
void cache_set_valid(struct cache_index *ix, uint32_t s, cache_mask valid);

/* The slot of a block; CACHE_NO_SLOT. */
uint32_t cache_find(const struct cache_index *ix, uint64_t block, bool dirty);
/* Takes a free slot for a block, without giving it to it: the one behind that of the block before, if it can; CACHE_NO_SLOT. */
uint32_t cache_take(struct cache_index *ix, uint64_t block, bool dirty);
/* Gives it one, which has none of this kind. */
void cache_put(struct cache_index *ix, uint32_t s, uint64_t block, bool dirty, cache_mask valid, uint32_t now);
/* Takes back one that was never put. */
void cache_untake(struct cache_index *ix, uint32_t s);
/* It was read. */
void cache_hit(struct cache_index *ix, uint32_t s);
/* Empties it. */
void cache_drop(struct cache_index *ix, uint32_t s);
/* What is dirty stays so, as if it were from now on. */
void cache_stay_dirty(struct cache_index *ix, uint32_t s, uint32_t now);
/* What was dirty is clean, of a block that has no clean slot. */
void cache_make_clean(struct cache_index *ix, uint32_t s);
/* A clean one that has no sectors any more is emptied, as soon as nobody reads or fills it. What it had may be dirty now, and is
 * clean again later: then it is where it was. */
void cache_shed(struct cache_index *ix, uint32_t s);
/* Empties the clean slot that is the next to go; false: there is none that can. */
bool cache_evict(struct cache_index *ix);
void cache_pin(struct cache_index *ix, uint32_t s);
void cache_unpin(struct cache_index *ix, uint32_t s);
/* The record of it that was on its way when it was emptied is durable: it is free if nobody reads it any more. */
void cache_settle(struct cache_index *ix, uint32_t s);

/* At opening: a free slot has what its record says. */
void cache_restore(struct cache_index *ix, uint32_t s, uint64_t key, const uint64_t valid[2], uint32_t now);

#endif
