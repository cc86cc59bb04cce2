/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The near file of the filter cache+: its form, how it is brought up to date, and what is found in it after a crash. cache.c
 * has the calls of a driver, cache_home.c writes back, tools/cache shows and ends.
 *
 * THE FILE. Two slots of a page (side.h: the head), two tables of records, then the blocks:
 *
 *	head     which store it is of, number and digest of the last pass, length of the store, intents
 *	records  64 bytes for each block of the file, in each of the two tables: which block of the store, which of its sectors
 *	         are there, and whether the far store has them, too; with the pass that wrote it, and a sum of all that
 *	blocks   the bytes, in no order, but neighbours side by side where there is room: then they move in one request. The first
	         one lies at a multiple of its size, so that the page cache can take each as one piece
 *
 * A PASS makes all that the index says durable: the records of slots that have changed are written, each over the older one of
 * its two; the file is flushed, with the blocks; the head says that this pass counts; the file is flushed again. `digest` is
 * the sums of all records that count, by exclusive or. After that the head is written once more, unflushed, so that a damaged
 * slot of it is never the only one that knows the last pass where nobody has lost power.
 *
 * ORDERS, which everything rests on:
 *	1. A pass counts when its head is there, and its head is written when its records and blocks are durable.
 *	2. A record is written over one that does not count any more, and only once between two flushes.
 *	3. The room of a block is written for another one, or as dirty, when a pass has said that it is empty. A dirty sector goes to
 *	   a slot that has nothing but dirty ones; it is clean where it is not, and a pass says both at once.
 *	4. The far store is written with a sector when a pass has said that it is dirty; and a pass says that it is clean when the
 *	   far store was flushed.
 *	5. What goes to the far store past this file is written when a pass has noted the intent for its region, if clean
 *	   sectors of it may be in a record that counts; the intent goes when the far store was flushed.
 *	6. Before the first write after an opening, what was found is flushed.
 *
 * WHAT A CRASH LEAVES. Sectors written since the last flush may be old, new or torn, in any mixture.
 *	- In a pass: the head says the one before. Its records are all there (2), and what they say of blocks is true: these are
 *	  not written meanwhile (3), but for dirty sectors that are stored to again, as those of any disk.
 *	- Between passes: what is not in a record is not there: the far store has what was before.
 *	- While the far store is written: a record has the sector as dirty (4), so that the far one is not asked; or the intent
 *	  is noted (5), and clean sectors of that region are forgotten.
 *	- While the head is written: the other slot of it has the pass before, or the same one.
 *
 * A FLUSH THAT FAILS may have lost what was written since the last one, and the next may go well for nothing. So all that is
 * dirty is read and written again before that, clean sectors that were to become durable are forgotten, and the slot of the
 * head that was written is written over with what it said before.
 *
 * DAMAGE of the head is found by the sums of its slots, of records by the digest: it is that of exactly the records that
 * were there in this pass.
 */
#ifndef DRIVERS_CACHE_NEAR_H
#define DRIVERS_CACHE_NEAR_H

#include <time.h>

#include "cache_index.h"
#include "side.h"

#define CACHE_REGIONS 8192             /* of the store, by a hash: for intents */
#define CACHE_STORE 2048
#define CACHE_BLOCK ((size_t)64 << 10)
#define CACHE_BLOCK_MIN ((size_t)4 << 10)
#define CACHE_BLOCK_MAX ((size_t)256 << 10)
#define CACHE_SECTOR_MIN 512
#define CACHE_SECTOR_MAX (CACHE_BLOCK_MAX / CACHE_SECTORS)

static const struct timespec cache_moment = { 0, 20000 };

/* What is looked at to know the far store again. */
struct cache_facts {
	uint64_t id;                   /* of the file; 0: unknown */
	uint64_t size;
	uint64_t seconds, nanoseconds; /* when it was changed; 0: unknown */
	char name[256];                /* last part of its path */
};

struct cache_head {
	uint64_t salt;
	uint64_t pass, digest;
	uint64_t block, slots;         /* bytes of one, and how many */
	uint64_t size;                 /* of the store, what is dirty included */
	struct cache_facts far;
	uint64_t touched;              /* 1: the far store may have been written by us, or by a filter there, since `far` was so */
	uint64_t intent[CACHE_REGIONS / 64];
	char store[CACHE_STORE];       /* URI of the store, for tools; "": unknown */
};

struct cache_record {
	uint64_t key;                  /* as that of a cache_slot */
	uint64_t valid[2];
	uint64_t pass;
	uint64_t slot;
	uint64_t unused[2];
	uint64_t sum;                  /* of all before it */
};

struct cache_near {
	struct side file;
	struct header slots;
	struct cache_head head;        /* as it is durable; under the index's lock */
	struct cache_head next;        /* as the next pass writes it; under the index's lock */
	uint64_t sure[CACHE_REGIONS / 64]; /* intents that are durable and will be after a pass under way; under that lock */
	uint64_t begun[CACHE_REGIONS / 64];/* those that there were when the pass under way began; under `passing` */
	struct cache_index index;
	uint64_t digest;               /* of the records as they were written last; under the index's lock */
	uint64_t durable;              /* number of the last slot of the head that was flushed; under `passing` */
	bool unsure;                   /* a flush has failed: one behind it may be there, or not, and what is dirty; under `passing` */
	bool mending;                  /* nobody may begin to write dirty slots; under the index's lock */
	_Atomic unsigned failures;     /* passes that have failed: what was written to the file since the one before may be lost */
	_Atomic uint32_t passing;      /* a lock, across a pass: outside the index's */
	struct cache_record record[64];/* under `passing` */
	unsigned sector_shift, block_shift;
	uint64_t records_at[2], blocks_at;
};

/* What the caller wants. */
struct cache_wish {
	const char *path;
	bool create;
	uint64_t size, block;          /* 0: as the file has it */
	struct cache_facts far;
	bool doubt;                    /* these do not say whether the far store was changed otherwise */
	char store[CACHE_STORE];       /* its URI; "": it has none that others could open */
};

/* Opens it and fills the index, or makes one. Clean sectors that the far store may have differently are forgotten. All errors
 * have a sentence. */
int cache_near_open(struct cache_near *n, const struct cache_wish *wish, struct ummap_geom *geom);
int cache_near_close(struct cache_near *n);
/* Another handle has opened the file and failed: what it has written there is read again. Nothing
 * is dirty. */
int cache_near_resume(struct cache_near *n);
/* Opens it to be looked at; what is there is in n->head, and in the index if `how` is a lock. 1: it is new, and empty. */
int cache_near_look(struct cache_near *n, const char *path, int how, struct ummap_geom *geom);

/* Makes durable what the index and `next` say, and what is in the blocks. If it fails, nothing is lost that can be read: the
 * next one writes it again. */
int cache_pass(struct cache_near *n);

/* Where a byte of a slot's block is. */
static inline uint64_t cache_place(const struct cache_near *n, uint32_t slot, uint64_t skip)
{
	return n->blocks_at + ((uint64_t)slot << n->block_shift) + skip;
}

static inline unsigned cache_region(uint64_t block)
{
	return (unsigned)((block >> 4) * 0x9e3779b97f4a7c15u >> 51);
}

static inline bool cache_intends(const uint64_t intent[CACHE_REGIONS / 64], uint64_t block)
{
	return intent[cache_region(block) / 64] >> cache_region(block) % 64 & 1;
}

#endif
