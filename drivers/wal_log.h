/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log of the filter wal+: its form, what is appended to it, and what is found in it after a crash. wal.c has the index
 * and the calls of a driver, wal_home.c brings home, tools/wal shows and mends.
 *
 * THE FILE. Two slots of a page (side.h: the head), then records, each right behind the one before:
 *
 *	head    salt, tail, chain, home, acked, floor, name of the store, drivers behind wal+
 *	DATA    64 bytes, then up to 256 blocks of 4 KiB: what blocks `where` ... of the store are from now on
 *	COMMIT  64 bytes: all records before it are of epochs that are complete; `where` is the length of the store
 *
 * A record says at which byte of the file it stands, to which epoch it belongs, and which record comes before it (`prev`:
 * that one's `sum`; the first one at `tail` has the head's `chain`). `sum` covers the 64 bytes, `data` the blocks, and both
 * are seeded with `salt`, which is another one each time the log begins anew at the front of the file. So records of an
 * older beginning, or of a time after a commit that was gone back behind, never fit into the chain. Numbers are as the
 * machine has them (the magic does not read on a machine of the other byte order).
 *
 * EPOCHS. Commit number n ends epoch n. The store itself has epoch `home`, or, while a later one is brought home, something
 * between `home` and that one. `floor` is the oldest epoch that may still be gone back to; a commit carries it as it is from
 * then on (max(floor before, n - keep + 1)), and only what is not younger than it is brought home.
 *
 * ORDERS, which everything rests on:
 *	1. A commit is acknowledged after a flush of the log that comes after its writing. The records of epoch n + 1 are
 *	   written after that flush.
 *	2. Nothing is written home that a durable commit does not cover, and whose floor does not forbid going back before it.
 *	3. The tail moves past records when they are at home and home was flushed. It is durable, in both slots, before the
 *	   room of these records is given back, or written anew.
 *	4. A record is in the index when it is written, and leaves it when it is at home; its room is given back when nobody
 *	   reads it any more.
 *	5. Before the first record after a recovery, what was found is flushed, and what is behind the last commit is cut off.
 *
 * WHAT A CRASH LEAVES, and why what is found is right. Sectors of the log and of the store that were written since their
 * last flush may be old, new or torn, in any mixture.
 *	- In the middle of appending: the last commit and all before it were flushed (1), so the chain up to there is whole. What
 *	  comes after has no commit, whatever of it is there, and counts for nothing.
 *	- In the middle of a commit: the chain reaches it or it does not, because each record in it has sums of header and
 *	  blocks. It is there whole, or not at all; nobody has been told that it is.
 *	- In the middle of bringing home: the store has any mixture of `home` and the epoch that is brought. The log has all
 *	  records since the tail still (3), and they say each block that was being written, and the length of the store. Blocks
 *	  that they do not say were not written. Reads go to the log for all of them.
 *	- While the head is written: the other slot is whole, and was durable before. It has the tail and chain of before, whose
 *	  records are there (3), or the same ones.
 *	- While records move to the front: with the old head, the old records are all there, because the
 *	  copies are before the tail. The new head is written when the copies are durable. Its salt
 *	  is new, so no old record fits the chain.
 *	- While the log begins anew: with the old head, all its records are there and at home, and bringing them there again
 *	  changes nothing. With the new one the salt is new, so that nothing fits the chain.
 *	- In a recovery: it writes nothing but what (5) says, which the next one does again; going back writes the head first
 *	  (floor, and `acked` lower), and cuts then: in between the log is whole, and its newest epoch is what it was.
 *
 * DAMAGE is told from the end of the log by what cannot be behind an end: a commit that the head has acknowledged, or a
 * record of the epoch after the next one (1). `acked` is written behind each commit without a flush of its own, so that a
 * kill loses nothing of it, and power failure at most the last one's.
 *
 * Locks: that of a draft, from its beginning to its end; under it, or by itself, `lock` around appending, committing and what they
 * change; under that, or by itself, `head_lock` around the head.
 */
#ifndef DRIVERS_WAL_LOG_H
#define DRIVERS_WAL_LOG_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "behind.h"
#include "side.h"

#define WAL_BLOCK ((size_t)4096)
#define WAL_BLOCKS_MAX 256         /* of one record */
#define WAL_KEEP_MAX 16
#define WAL_DRAFTS 4
#define WAL_START HEADER_BYTES        /* where the first record can be */
#define WAL_SUFFIX ".wal"
#define WAL_HEAD_MAGIC 0x31646165686c6177u   /* "walhead1" */
#define WAL_RECORD_MAGIC 0x31636572676c6177u /* "walgrec1" */

enum wal_kind { WAL_DATA = 1, WAL_COMMIT = 2 };

struct wal_record {
	uint64_t magic;
	uint32_t kind;
	uint32_t blocks;           /* that follow */
	uint64_t epoch;
	uint64_t place;            /* of this record in the file */
	uint64_t where;            /* DATA: its first block in the store. COMMIT: bytes of the store */
	uint64_t data;             /* DATA: sum of the blocks. COMMIT: floor */
	uint64_t prev;             /* sum of the record before it */
	uint64_t sum;              /* of all this */
};

struct wal_head {
	uint64_t salt;
	uint64_t tail, chain;      /* where the first record is, and what it says comes before it */
	uint64_t home;             /* epoch at the tail */
	uint64_t acked;            /* this commit was durable, at least */
	uint64_t floor;
	char name[256];            /* last part of the store's path */
	char way[BEHIND_WAY];      /* behind_way; "": unknown */
};

/* Behind a record: where the next one goes, and what it has to say. */
struct wal_spot {
	uint64_t at, chain;
	uint64_t epoch;            /* the newest that is complete */
	uint64_t size, floor;      /* as its commit says */
};

/* A record to be, with its blocks: copied and summed up before its turn in the log comes. */
struct wal_draft {
	_Atomic uint32_t lock;
	struct wal_record *record; /* in memory for the largest one */
	uint64_t salt;             /* with which its blocks are summed up */
};

struct wal_log {
	struct side file;
	struct wal_head head;
	struct header slots;
	_Atomic uint64_t salt;     /* as in the head */
	_Atomic uint32_t head_lock;
	_Atomic uint32_t lock;
	struct wal_spot end;       /* .epoch and behind: as at `durable` */
	struct wal_spot durable;   /* behind the newest commit */
	uint64_t started;          /* bytes before it are on their way to the disk */
	struct wal_spot commits[2 * WAL_KEEP_MAX]; /* the last ones, by number */
	struct wal_draft drafts[WAL_DRAFTS];
	unsigned keep;
	uint64_t limit;            /* bytes of records; UINT64_MAX: none */
	_Atomic uint64_t tail;     /* as in the head; room before it is given back */
	_Atomic uint64_t acked;    /* newest commit that was acknowledged */
	bool unsure;               /* a flush has failed, and may have lost records behind `durable` */
	bool broken;               /* it has: nothing is taken any more */
	bool restarting;           /* its head could not be written: that comes before anything else */
};

/* What the caller wants of a log. */
struct wal_wish {
	const char *path;
	const char *name;          /* of the store; NULL: any */
	const char *way;           /* to it; NULL: any */
	uint64_t store_size;       /* now */
	bool write;
	bool create;               /* one that is not there, ... */
	mode_t mode;               /* ... with these rights */
	bool back;                 /* to `epoch` */
	uint64_t epoch;
	unsigned keep;
	uint64_t limit;
	/* Is called for each record up to where it goes on, which is found to be whole; NULL: for none. An error ends it. */
	int (*visit)(void *arg, const struct wal_record *record);
	void *arg;
};

/*
 * Opens a log, finds what is in it, and, for writing, makes it ready to go on. What is not there and not to be made has
 * file.h NULL. All errors have a sentence.
 */
int wal_open(struct wal_log *l, const struct wal_wish *wish, struct ummap_geom *geom);
int wal_close(struct wal_log *l);

/* The contents of a log, for the command `ummap wal`. */
struct wal_found {
	struct wal_spot end;       /* behind the newest commit that is whole */
	uint64_t records, blocks;  /* up to there */
	uint64_t floor;
	uint64_t length;           /* of the file */
	uint64_t damaged_at;       /* 0: nowhere, else a byte of the record at which it is */
};

/* Opens and reads it, and changes nothing; `how` is the lock. A damaged one is found->damaged_at, and no error. */
int wal_look(struct wal_log *l, const char *path, int how, struct wal_found *found, struct ummap_geom *geom);
/* The path of a store itself, by whichever link it is opened. */
void wal_resolve(char itself[PATH_MAX], const char *store);
/* Where its log is: beside it. -ENAMETOOLONG. */
int wal_beside(char log[PATH_MAX], const char *store);
/* Whether commits that are not at home are in the log of that path: 0, 1, or -errno where that cannot be known. It is not
 * locked, and may be somebody's. */
int wal_has_commits(const char *path);

/* For drivers of files: refuses to open a store whose log has commits that are not in it, which
 * would be missed, or overwrite later changes. Returns 0, or -EUCLEAN with a sentence. */
int wal_check_store(const char *path, struct ummap_geom *geom);

/* Each record from the tail to `to`; its blocks are at place + sizeof, and whoever reads them has to see whether they are whole.
 * Stops at an error of `visit`; -EBADMSG: a record is damaged. */
int wal_each(struct wal_log *l, uint64_t to, int (*visit)(void *arg, const struct wal_record *record), void *arg);
/* Whether the blocks of a record are what was written; `data` is as in the record. */
bool wal_is_whole(const struct wal_log *l, const void *blocks, uint64_t n, uint64_t data);

/* A record of these blocks, to be appended once: memory that is pinned may be stored to meanwhile, and does not change it. */
struct wal_draft *wal_draft_begin(struct wal_log *l, uint64_t first, uint32_t blocks, const struct iovec *iov, int n);
void wal_draft_end(struct wal_draft *d);

/* ---- Under the lock ---- */

/* Appends it; *place is that of its first block. -ENOSPC: beyond the limit. */
int wal_append(struct wal_log *l, struct wal_draft *d, uint64_t *place);
/* Whether so many blocks in one record would be beyond the limit. */
bool wal_is_full(const struct wal_log *l, uint32_t blocks);
/* Ends the epoch, for a store of so many bytes. 0; a positive errno: not durable, but nothing is lost; or -errno. */
int wal_commit(struct wal_log *l, uint64_t size);
/* The newest commit that may be brought home; false: it is there. */
bool wal_due(struct wal_log *l, struct wal_spot *due);
/* Whether there is nothing in it but what is at home. */
bool wal_is_empty(const struct wal_log *l);
/* Begins anew at the front; it is empty. */
int wal_restart(struct wal_log *l);
/* Copies all records from the tail on to the front of the file, where there must be room before
 * the tail, and has the head point to the copies. On success, every place in the file is lower by
 * *shift. The caller must keep the old records until no reader needs them. Allocates memory. */
int wal_move_to_front(struct wal_log *l, uint64_t *shift);

/* ---- Without it ---- */

/* Called when another handle has opened the log and failed. If that handle has written the head,
 * writes it again. -EIO: records are missing. */
int wal_resume(struct wal_log *l);

/* From now on only the newest epoch can be gone back to. */
int wal_forget_epochs(struct wal_log *l);
/* What is before `spot` is at home. */
int wal_advance(struct wal_log *l, const struct wal_spot *spot);

#endif
