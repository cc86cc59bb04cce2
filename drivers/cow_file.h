/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of changes of the filter cow+: its form, what is added to it, what is found in it after a crash, and how it is
 * committed to the store. cow.c has the calls of a driver, tools/cow shows, commits and discards.
 *
 * THE FILE. A head (side.h), then groups of slots: a page of 256 entries, and the 256 blocks of 4 KiB that they are about. An
 * entry says which block of the store stands in its slot. Slots are taken in order, and never given back: a block that is
 * written again is written in its place. Entries have a sum of their own, seeded with `salt`, the slot's number in it, so
 * that none is taken for another's. Numbers are as the machine has them.
 *
 * ORDERS, which everything rests on:
 *	1. An entry is written when its block was flushed, and so was the size of the store in the head. So an entry that is
 *	   there has a whole block, inside the store.
 *	2. A flush is acknowledged when the entries of all blocks before it were flushed, too.
 *	3. `slots` in the head counts entries that were flushed.
 *	4. What is found is flushed before anything is written.
 *	5. A commit: `committing` is durable before the store is written; the store was flushed before the changes are removed.
 *
 * WHAT A CRASH LEAVES. Of what was written since the last flush, sectors are old, new or torn, as in any file.
 *	- Blocks without an entry count for nothing: the store's show. Their slots, if there are entries behind them, become
 *	  void by an entry that says so.
 *	- An entry is whole or counts for nothing. That the ones beside it are written with it, or in the same sector, is no
 *	  matter: they are written as they were.
 *	- Bytes behind the end of the store in its last block become zeros when the file is opened to be written.
 *	- In the middle of a commit the store has some of the changes. They say nothing of other blocks, so that doing it all once
 *	  more is right. Nothing but that is done with them.
 *
 * DAMAGE is an entry below `slots` that is not whole, or one anywhere that says what cannot be.
 *
 * Locks: `flushing` across a flush; under it, or by itself, `lock` around what is written.
 */
#ifndef DRIVERS_COW_FILE_H
#define DRIVERS_COW_FILE_H

#include "behind.h"
#include "blockmap.h"
#include "side.h"

#define COW_BLOCK ((size_t)4096)
#define COW_GROUP 256             /* slots that have their entries in one page */
#define COW_SUFFIX ".cow"

struct cow_entry {
	uint64_t block;            /* of the store; COW_VOID: none */
	uint64_t sum;
};

#define COW_VOID (UINT64_MAX - 1)

/* What a store was when its changes began. */
struct cow_base {
	uint64_t size;
	uint64_t inode;            /* 0: it is no regular file */
	int64_t seconds, nanoseconds; /* when it was written last; a regular file's */
	char name[256];            /* last part of its path */
};

/* A commit has begun, and the store may have some of the changes. */
#define COW_COMMITTING 1
/* As before, but the commit was given up: the file serves as before, and must not be discarded. */
#define COW_MIXED 2

struct cow_head {
	uint64_t salt;
	uint64_t size;             /* of the store with its changes */
	uint64_t slots;            /* entries that are durable, at least */
	uint64_t committing;       /* COW_* below, or 0 */
	struct cow_base base;
	char way[BEHIND_WAY];      /* behind_way to the store; "": unknown */
};

struct cow_file {
	struct side file;
	struct cow_head head;
	struct header slots;    /* of the head */
	bool head_due;             /* it says more than is durable */
	struct blockmap index;     /* block: where it stands in the file */
	struct blockmap entries;   /* slot: its block + 1, from `durable` on */
	_Atomic uint32_t lock;
	_Atomic uint32_t flushing;
	uint64_t end;              /* the next slot */
	uint64_t durable;          /* entries before it are */
	bool unsure;               /* a flush has failed, and may have lost blocks whose entries are not durable */
	char *page;                /* under `flushing` */
	uint64_t damaged_at;       /* a byte of the file; 0: nowhere */
};

void cow_describe(struct cow_base *base, const char *path, int fd, uint64_t size);
/* Whether they are changes of this store as it is: 0; -EINVAL, -ESTALE, with a sentence. */
int cow_fits(const struct cow_file *f, const struct cow_base *now, struct ummap_geom *geom);

/* What the caller wants of a file of changes. */
struct cow_wish {
	const char *path;
	const struct cow_base *base;
	const char *way;           /* to it, as behind_way says */
	bool write;                /* makes it, too, ... */
	mode_t mode;               /* ... with these rights */
};

/* Opens it, and finds what is in it. One that is not there, and is not to be written, has file.h NULL. All errors have a
 * sentence. */
int cow_open(struct cow_file *f, const struct cow_wish *wish, struct ummap_geom *geom);
/* Opens one that is there, and changes nothing; `how` is the lock. Damage is no error. */
int cow_look(struct cow_file *f, const char *path, int how, struct ummap_geom *geom);
int cow_close(struct cow_file *f);
/* Refuses the store of that path with EUCLEAN, and a message, while the changes beside it have an
 * interrupted commit: the next commit would write the changes over newer contents. */
int cow_check_store(const char *path, struct ummap_geom *geom);

/* Under the lock: n whole blocks that have no slot, side by side. */
int cow_add(struct cow_file *f, uint64_t block, uint64_t n, const char *buf);
/* Whether there is anything that a flush would write. */
bool cow_is_due(const struct cow_file *f, uint64_t size);
/* Makes durable what was written, in a store of so many bytes. 0; a positive errno: not durable, but nothing is lost; or
 * -errno. */
int cow_flush(struct cow_file *f, uint64_t size);
/* Writes all changes to the store, which is `base` now and open to be written. It can be done again
 * if it was interrupted. Errors have a sentence. */
int cow_write_changes(struct cow_file *f, const struct cow_base *base,
		      const struct ummap_driver *driver, void *store, struct ummap_geom *geom);
/* The same, and removes the file. */
int cow_commit(struct cow_file *f, const struct cow_base *base, const struct ummap_driver *driver, void *store,
	       struct ummap_geom *geom);
/* Takes back a call of cow_write_changes, also one that failed: the file stays, and its changes are
 * those of the store as it is now, which may have some of them (COW_MIXED). */
int cow_end_commit(struct cow_file *f, const char *path);

#endif
