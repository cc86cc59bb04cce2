/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An overlay: blocks of a store that are in another file. The filters wal+, cow+ and cache+ are
 * policies over it. format.h has the form of the file.
 *
 * STATES. A slot of the file is in one of these states:
 *
 *	free       no commit that may be opened needs its block, and no reader uses it
 *	changed    it has the newest contents of a block, which no durable commit has
 *	committed  the newest durable commit has its block
 *	old        a later slot has its block now; older commits may need this one
 *	retired    no commit needs it, but a reader may still use it
 *
 * COMMITS have numbers. Each slot has two records, in the tables A and B, of which at most one
 * counts. Commit n writes the records of all changed slots over those that do not count, and a
 * commit record with the digest of all records that count from then on. `home` is a commit whose
 * blocks are in the store. `floor` is the oldest commit that may be opened, home <= floor <= n.
 *
 * CONTENTS AT COMMIT m. The record of a slot at m is the newer one of its two records that are
 * whole and not newer than m. Of all slots with one block, the one with the newest record at m has
 * the block, unless that record is not newer than `home`: then the store has it. The digest of m
 * proves that all records at m were found. Cuts are described below.
 *
 * ORDERS
 *	1. A block is written only to a free slot.
 *	2. The records and the commit record of commit n are written when commit n - 1 is durable.
 *	   A commit is acknowledged after one flush that follows its last write.
 *	3. A slot becomes old when the index has a later slot for its block, or when there is a
 *	   later cut, and is retired when the commit of that later slot or cut is not newer than the
 *	   durable floor; a slot whose record was never written is retired at once.
 *	4. A retired slot becomes free when all readers that may know it have left.
 *	5. Only blocks of commits up to the durable floor are written to the store. `home` becomes
 *	   durable after a flush of the store, in both slots of the header, and only then the slots
 *	   of these commits are retired.
 *	6. Nothing that was found is written over before it was flushed. When a file is opened for
 *	   writing, all whole records and commit records that are newer than the chosen commit are
 *	   erased, and the file is flushed, before the first slot is written. If the chosen commit
 *	   is not the newest one, `goal` is durable in the header before that, and is cleared after.
 *	7. The acknowledgment names only a commit whose flush has succeeded.
 *	8. The policy cow has OVERLAY_APPLYING durable before it writes the store, and removes the
 *	   file after a flush of the store.
 *	9. A file begins anew, with a new salt, only if it has no block that is not in the store.
 *
 * THE TAIL of the store begins behind the end that the store has at every commit, also at one that
 * is under way. The policy wal writes long runs of blocks that the file lacks to the tail, not to
 * the file. A store has no tail for a file that is not beside it: there may be several such files,
 * each for a part of the store, and the end at a commit of one of them is not that of the others.
 *	15. OVERLAY_TAIL is durable in the header before the first write to the tail.
 *	16. The store is flushed after the last write to the tail that belongs to a commit, and
 *	    before its commit record is written. If that flush fails, the overlay is broken, because
 *	    the file has no copy of the blocks.
 * With OVERLAY_TAIL, a store ends where the newest commit says: for a reader after a crash at once,
 * and in fact when the file is opened for writing.
 *
 * CUTS. If a store behind cow+ becomes shorter, a slot without a block records its new end, rounded
 * up to a whole block: a cut. From commit m of the cut on, all bytes that the store has there, and
 * all older records of blocks and of cuts there, do not count. Blocks that are written later count
 * again. So the contents and the length of the store change in one commit, and a store that grows
 * again has zeros there. The policy wal, which may write the store, shortens it at once, if the
 * file has no block.
 *
 * WHY TWO RECORDS ARE ENOUGH. A record of commit n is written into a slot that was free, or that
 * had a record of a failed attempt at n itself. The record that counts in a free slot is not newer
 * than the floor: its block is superseded by a commit up to the floor (3), or is in the store (5),
 * or the slot is empty since such a commit. So for every commit m from the floor to n - 1, the
 * record of the slot at m is the one that counts, which stays as it is. After commit n is durable,
 * both records of the slot are kept until n is not newer than the floor. The block of the slot may
 * be written over although its record still counts, since for each m from the floor on, a newer
 * record has that block, or the record is not newer than `home`. That newer record stays for the
 * same reason.
 *
 * WHAT A CRASH LEAVES. Sectors written since the last flush may be old, new or torn, in any
 * mixture.
 *	- During a commit: its commit record is not whole, or a record is missing, which the
 *	  digest shows, or a block is torn, which the sums of the commit's blocks show. Then the
 *	  commit before it counts, all of which was flushed (2), and none of whose records and
 *	  blocks was written over (1, 3). If all is there, the commit counts.
 *	- Between commits: blocks that no record names count for nothing.
 *	- After an attempt that failed: the next attempt has the same number. Records of the failed
 *	  one whose blocks have changed since are written again, empty if need be, before the flush
 *	  of the next attempt.
 *	- While the store is written: all blocks that may be written have records that are newer
 *	  than `home` at every commit from the floor on, so reads do not use the store for them.
 *	- While the file is prepared for writing: the erasing can be repeated, since the chosen
 *	  commit does not need what is erased; without `goal`, that is what belongs to a commit
 *	  that is not whole, and cannot become whole by losing records.
 *	- While the header is written: the other slot of it is whole. With an older `home`, the
 *	  records since are there (5) and the store has their blocks, too. With the older salt, all
 *	  blocks are in the store (9).
 *
 * DAMAGE. Only the newest commit may be torn, and only if it was not acknowledged. If the commit
 * before it does not hold, or an acknowledged commit does not, the file is damaged. The
 * acknowledgment is written without a flush, so a loss of power may lose the newest one.
 *
 * A FLUSH THAT FAILS may have lost all that was written since the last one, and the next flush may
 * succeed nevertheless. Before the next attempt, the blocks of all changed slots are read, compared
 * with their sums, and written again. If one differs, the overlay is broken: it accepts no write.
 *
 * THE POLICY CACHE differs, because it need not be atomic, but must not copy blocks that change in
 * part. The file has a fixed number of slots. A slot has some of the parts of its block (4 KiB
 * each). A block has at most one dirty slot, with parts that the store lacks, and one clean slot,
 * with parts that the store has, too. A part that both have counts as dirty. A slot is free, or
 *
 *	dirty      only a write to the store may make it clean
 *	clean      it may be emptied at any time
 *	doubtful   it is clean, but a crash empties it, because the store may lose what was written
 *	emptied    a commit that says so makes it free, as it does with an old slot
 *
 * Records of dirty slots have no sums of blocks. `data` of a clean slot may combine, by exclusive
 * or, the sums of the parts that the slot has. A commit makes records of one group after the other,
 * so that a change which comes meanwhile may be in it or not. `size` of the commit is at least as
 * new as all records. The orders 1, 3, 5 and 8 do not apply; instead:
 *	10. The records of a commit, and the blocks, are durable before the commit record is
 *	    written.
 *	11. A part of a clean slot is written only if no record that counts, or may count, says that
 *	    the slot has it, or if the slot is doubtful there. A part of a dirty slot may be written
 *	    at any time. A slot is used for another block when its empty record is durable.
 *	12. A part of a dirty slot is written to the store when a commit says that the slot has it.
 *	    The slot becomes clean after a flush of the store.
 *	13. Other bytes are written to the store, past the file, when a commit says that no clean
 *	    slot has them, or that the slot is doubtful. A slot that is filled while the store has
 *	    such bytes which were not flushed is doubtful. Doubt ends after a flush of the store.
 *	14. OVERLAY_TOUCHED is durable in the header before the first write to the store.
 *
 * A crash leaves the records of the last commit (2). Dirty parts may be older or newer, or torn, as
 * on any disk; all that was written when the commit began is there (10). Clean parts are those of
 * the store (11, 12, 13). After a flush that fails, clean slots that have changed are emptied, and
 * all dirty parts are read and written again.
 *
 * READERS. Write calls may run in a signal handler and must not wait for a reader, which may be the
 * interrupted thread. Readers count in one of two generations. Slots are retired into the present
 * generation. When the other generation has no readers, its slots are free, and becomes the present
 * one: a reader that enters later cannot find slots that were retired before.
 *
 * LOCKS. `parts` around a write of a part of a block; inside it or by itself, `file_lock` around
 * commits, header writes and all flushes of the file; inside it or by itself, `lock` around the
 * slots and the index, which is never held during a transfer. Reading takes no lock.
 *
 * Only the functions for opening, and those that say so, allocate memory by malloc; all other ones
 * may run in signal handlers.
 */
#ifndef DRIVERS_OVERLAY_H
#define DRIVERS_OVERLAY_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../blockmap.h"
#include "../held.h"
#include "../notice.h"
#include "../side.h"
#include "format.h"

struct overlay;

#define OVERLAY_BLOCK ((size_t)4096)   /* bytes of a block of wal+ and cow+ */
#define OVERLAY_BLOCK_MAX ((size_t)256 << 10)
#define OVERLAY_RUN 256            /* maximum number of blocks in one transfer */
#define OVERLAY_RUN_BYTES (OVERLAY_RUN * OVERLAY_BLOCK)
#define OVERLAY_DRAFTS 4
#define OVERLAY_KEEP_MAX 16
#define OVERLAY_NO_SLOT UINT32_MAX
#define OVERLAY_NEVER UINT64_MAX

/* Values of overlay_slot.flags. */
#define SLOT_COPY 1                /* the record in table B counts, not the one in table A */
#define SLOT_ATTEMPTED 2           /* a record of the next commit may be in the file */
#define SLOT_BAD 4                 /* on opening: the block differs from its sum */
#define SLOT_CLEAN 8               /* the store has the block, too */
#define SLOT_DOUBTFUL 16           /* records of the slot say OVERLAY_DOUBTFUL from now on */
#define SLOT_DOUBTS_DURABLY 32     /* the record that counts says so */
#define SLOT_DOUBTS_NEXT 64        /* the record of the commit under way says so */
#define SLOT_SUMMED 128            /* of the policy cache: `data` is valid for all parts */
#define SLOT_CUT 256               /* a cut, which has no block */

struct overlay_slot {
	uint64_t block;            /* OVERLAY_EMPTY: none */
	uint64_t commit;           /* number of its commit; OVERLAY_NEVER: none */
	uint64_t data;             /* checksum of the block */
	uint64_t sum;              /* sum of the record that was written last; 0: none was */
	uint64_t valid;            /* parts that the slot has, a bit each; of the policy cache */
	uint32_t older;            /* slot with the contents of the block before this one */
	uint32_t next;             /* next slot of the list that this one is in */
	uint32_t flags;
};

struct overlay_group {
	struct overlay_slot slot[OVERLAY_GROUP];
	uint64_t used[OVERLAY_GROUP / 64];    /* bit set of slots that are not free */
	uint64_t changed[OVERLAY_GROUP / 64]; /* bit set of slots that the next commit writes */
	uint64_t taken[OVERLAY_GROUP / 64];   /* bit set of slots of the commit under way */
	uint32_t next_changed;                /* next group with changed slots, + 1; 0: none */
	uint32_t next_taken;                  /* next group of the commit under way, + 1 */
	bool queued;                          /* whether the group is in the list of changed ones */
};

/* Memory for a transfer: blocks are copied and summed up there before they are written, because the
 * program may store to its memory meanwhile. */
struct overlay_draft {
	_Atomic uint32_t lock;
	char *blocks;              /* OVERLAY_RUN_BYTES */
	uint64_t first;            /* number of the first block in the store */
	unsigned nblocks, done;    /* number of blocks, and of those that were published */
	uint64_t sums[OVERLAY_RUN];
};

struct overlay_policy {
	const char *scheme;        /* "wal" or "cow" */
	const char *file;          /* name of the file in messages, as in "the log" */
	enum overlay_policy_id id;
	bool checks_blocks;        /* whether all blocks are compared with their sums on opening */
	/* Called when no slot can be taken; NULL: never. Returns whether there may be slots now. */
	bool (*make_room)(struct overlay *o);
	/* Called after a write of blocks; NULL: never. May wait. */
	void (*has_written)(struct overlay *o);
	/* Called under file_lock after a flush has failed, and before the next commit, in place of
	 * writing all blocks of changed slots again; NULL: never. */
	void (*has_failed)(struct overlay *o);
	int (*mend)(struct overlay *o);
};

#define OVERLAY_SENDERS 7                 /* maximum number of threads of a crew */

struct overlay_sender {
	struct overlay_crew *crew;
	char *blocks;              /* OVERLAY_RUN_BYTES */
	pthread_t thread;
};

/* Threads that write to the store together with their caller, one pass at a time (send.c). */
struct overlay_crew {
	struct overlay_sender senders[OVERLAY_SENDERS];
	unsigned nsenders;               /* number of threads */
	struct overlay_sending *sending; /* the pass */
	_Atomic uint32_t called;         /* changes when the threads must look for work */
	_Atomic uint32_t present;        /* number of threads that look for work */
	_Atomic int places;              /* number of threads that may still join the pass */
	_Atomic bool dismissed;
};

/* The first member of each policy's handle, so that the calls below serve as calls of a driver. */
struct overlay {
	const struct overlay_policy *policy;
	struct behind store;
	struct side file;                  /* h NULL: a handle for reading without a file */
	struct header slots;               /* of the header; under file_lock */
	struct overlay_head head;          /* under file_lock */
	bool writable;
	bool grows;                        /* whether the store may become longer */
	bool verifies;                     /* whether reads compare blocks with their sums */
	_Atomic uint64_t size;             /* bytes of the store with the blocks of the file */
	_Atomic uint32_t parts, file_lock, lock;
	char *part;                        /* memory for a block; under `parts` */
	struct overlay_draft drafts[OVERLAY_DRAFTS];
	struct notice notice;
	struct held held[HELD_MAX];
	struct overlay_crew crew;

	/* ---- Commits; changed under both locks, so read under either ---- */
	struct overlay_commit newest;      /* newest durable commit, with the floor in force */
	struct overlay_commit commits[OVERLAY_COMMITS]; /* number n at n % 32; magic 0: none */
	uint64_t next;                     /* number of the commit that gets changes made now */
	uint64_t digest;                   /* sums of all slots, combined by exclusive or */
	unsigned keep;                     /* commits that stay open */
	_Atomic uint64_t acked;            /* commit in the acknowledgment, as read or written */
	bool unsure;                       /* a flush has failed since the newest commit */
	bool head_due;                     /* the header in the file may not be the present one */
	_Atomic bool broken;               /* blocks are lost */

	/* ---- Slots; under the lock ---- */
	struct blockmap index;             /* offset in the file of a block */
	struct overlay_group ***groups;    /* table of tables of OVERLAY_TABLE pointers */
	uint32_t ngroups;
	struct overlay_memory *memory;     /* newest mapping with groups */
	uint64_t used;                     /* number of slots that are not free */
	uint64_t limit;                    /* no slot from this one on is taken; UINT64_MAX: none */
	uint32_t cursor;                   /* slot behind the one that was taken last */
	uint32_t first_changed;            /* first group with changed slots, + 1 */
	uint32_t first_taken;              /* first group of the commit under way, + 1 */
	uint64_t nchanged;                 /* number of changed slots */
	uint64_t failures;                 /* number of flushes that have failed */
	uint64_t unstarted;                /* blocks written since side_start was called */
	uint32_t cuts;                     /* list of slots with cuts */
	_Atomic uint64_t store_end;        /* bytes of the store from this offset on do not
					      count, and read as zeros; OVERLAY_NEVER: all count */
	bool uses_tail;                    /* whether writes may go to the tail */
	_Atomic uint64_t tail;             /* first byte of the tail */
	_Atomic bool tail_marked;          /* whether the header says so (OVERLAY_TAIL) */
	_Atomic bool tail_due;             /* a write to the tail was not flushed */
	uint32_t old[OVERLAY_COMMITS];     /* lists of slots that commit n makes old, at n % 32 */
	uint64_t released;                 /* lists up to this commit were retired, or are held */
	uint64_t hold;                     /* lists of later commits are held */
	uint32_t held_old;                 /* list of slots to be retired when `hold` ends */
	uint32_t retired[2];               /* lists by generation */
	_Atomic unsigned generation;
	_Atomic uint64_t readers[2];

	/* ---- What was found ---- */
	bool goes_back;                    /* whether an older commit was chosen */
	bool has_newer;                    /* whether the file has records of later commits */
	uint64_t damaged_at;               /* byte of the file that is damaged; 0: none */
};

/* ---- open.c: opening and closing ---- */

struct overlay_opening {
	const char *path;
	bool write;                /* opens for writing, with an exclusive lock */
	bool create;               /* creates a missing file, with these permissions */
	mode_t mode;
	int lock;                  /* UMMAP_LOCK_* for reading */
};

/*
 * Opens a file, and finds the newest commit that holds: o->newest, o->commits, o->head, and slots.
 * Nothing is written. The caller has zeroed *o and set o->policy. Returns 0; 1 if the file is new
 * or empty; -ENOENT if it is missing; or another error, with a message. Damage is no error:
 * o->damaged_at is set, and o->newest is the newest commit that holds, or the base.
 */
int overlay_open(struct overlay *o, const struct overlay_opening *how, struct ummap_geom *geom);
/* Makes a new file. The caller has set in o->head: base, base_size, store, way, uri, data; and
 * block and slots_max if they are not 4 KiB and none. */
int overlay_create(struct overlay *o);
/* As overlay_create, but sets o->head itself, for a store with these properties. */
int overlay_create_for(struct overlay *o, const struct store_facts *store,
		       const struct ummap_uri *uri);
/* Chooses an older commit, from the floor on. o->newest is that commit then. */
int overlay_go_back(struct overlay *o, uint64_t number, struct ummap_geom *geom);
/* Fills the index with the chosen commit; of the policy cache, only the set of used slots. */
int overlay_load(struct overlay *o);
/* Prepares a file for writing (order 6), and allocates what writing needs. */
int overlay_make_ready(struct overlay *o);
/* Compares all blocks that commits from the floor on have, and the store may not have, with their
 * sums, after overlay_load. *bad is the number of a block that differs, and o->damaged_at its place
 * in the file; OVERLAY_EMPTY: none does. */
int overlay_check_blocks(struct overlay *o, uint64_t *bad);
/* Opens a file that another handle may be writing, without a lock, and reads only its header, into
 * o->head. Returns 0; 1 if the file is new or empty; or a negative errno value, with a message. */
int overlay_open_head(struct overlay *o, const char *path, struct ummap_geom *geom);
/* Whether the header in the file is the one that was read or written last. */
bool overlay_has_head(struct overlay *o);
/* Called when another handle has opened the file and failed. If it has written the header, reads
 * the file again and writes the header. -EIO: the contents have changed. */
int overlay_resume(struct overlay *o);
/* Reads the file again as overlay_open does. *changed: whether another handle has written it. If
 * not, nothing changes. */
int overlay_reload(struct overlay *o, bool *changed);
void overlay_close(struct overlay *o);
/* A message for a damaged file: returns -EUCLEAN. */
int overlay_refuse_damaged(const struct overlay *o, struct ummap_geom *geom);

/* For drivers of files: refuses a store with EUCLEAN and a message if a file beside it has contents
 * that are not in the store: commits of wal+, or an interrupted commit of cow+. */
int overlay_check_store(const char *path, struct ummap_geom *geom);
/* The check for cow+ only: wal+ opens the store. */
int overlay_check_store_cow(const char *path, struct ummap_geom *geom);

/* ---- names.c: names of stores and files ---- */

#define WAL_SUFFIX ".wal"

void overlay_describe(struct store_facts *facts, const char *path, int fd, uint64_t size);
/* Resolves symbolic links of a path. A path that does not exist is copied. */
void overlay_resolve(char real[PATH_MAX], const char *store);
/* The path of the file beside a store: the resolved path and the suffix. -ENAMETOOLONG. */
int overlay_beside(char path[PATH_MAX], const char *store, const char *suffix);
/* Whether a path leads to the file that drivers look for beside a store. */
bool overlay_is_beside(const char *path, const char *store, const char *suffix);
/* The store as an argument of the commands for overlays: a path, or a URI in quotes for a shell. */
void overlay_name_store(const struct ummap_uri *uri, char to[PATH_MAX]);
/* The value of a key of a layer; NULL: it is not given. */
const char *overlay_find_key(const struct ummap_uri *uri, const char *name);
/* Whether a layer of the URI is this filter. */
bool overlay_has_layer(const struct overlay_policy *policy, const struct ummap_uri *uri);
/* The layer of the URI that is this filter with this file; NULL: there is none. */
const struct ummap_uri *overlay_find_layer(const struct overlay *o, const struct ummap_uri *uri,
					   const char *suffix);

/* ---- records.c: the records of the file ---- */

/* The number of slots that fit a file of so many bytes; UINT64_MAX: no limit. */
uint64_t overlay_count_slots(const struct overlay *o, uint64_t size);

uint64_t overlay_record_at(const struct overlay *o, uint32_t slot, unsigned copy);
uint64_t overlay_block_at(const struct overlay *o, uint32_t slot);
uint32_t overlay_slot_at(const struct overlay *o, uint64_t place);
struct overlay_record overlay_make_record(const struct overlay *o, uint32_t slot, uint64_t commit);
uint64_t overlay_commit_at(uint64_t number);
static inline bool overlay_is_cache(const struct overlay *o)
{
	return o->head.policy == OVERLAY_CACHE;
}
/* The checksum of a block: without a salt, as the record of the block has one. */
static inline uint64_t overlay_sum(const void *block)
{
	return checksum(block, OVERLAY_BLOCK, 0);
}
/* Seals a commit record by its sum, and writes it. */
int overlay_write_commit(struct overlay *o, struct overlay_commit *c);
int overlay_acknowledge(struct overlay *o, uint64_t number);
/* Reads the commit records and the acknowledgment. *newest is the newest whole record's number. */
int overlay_read_commits(struct overlay *o, uint64_t *newest);
/* Reads the newest whole records of n slots of a group, also those that no commit has. block is
 * OVERLAY_EMPTY if a slot has none. */
#define OVERLAY_NEWEST_MAX 32
int overlay_read_newest(struct overlay *o, uint32_t first, unsigned n,
			struct overlay_record newest[OVERLAY_NEWEST_MAX]);
/* Finds a commit in memory, or the base. false: it is not there. */
bool overlay_find_commit(const struct overlay *o, uint64_t number, struct overlay_commit *c);
/* Finds the newest commit that holds; see overlay_open. */
int overlay_find_newest(struct overlay *o);
/* Reads all records, and fills the slots as they are at commit c. *holds: whether the digest is
 * right, and, if `blocks`, the sums of the blocks that c has written. */
int overlay_scan(struct overlay *o, const struct overlay_commit *c, bool blocks, bool *holds);
/* Erases what is newer than o->newest; the caller flushes. */
int overlay_erase_newer(struct overlay *o);

/* ---- slots.c: taking and retiring slots, under the lock ---- */

#define OVERLAY_TABLE 4096
#define OVERLAY_GROUPS_MAX (OVERLAY_TABLE * OVERLAY_TABLE - 1)

static inline struct overlay_group *overlay_group(const struct overlay *o, uint32_t group)
{
	return o->groups[group / OVERLAY_TABLE][group % OVERLAY_TABLE];
}

static inline struct overlay_slot *overlay_slot(const struct overlay *o, uint32_t slot)
{
	return &overlay_group(o, slot / OVERLAY_GROUP)->slot[slot % OVERLAY_GROUP];
}

/* Bit sets of a group, of which a slot selects the bit. */
static inline bool overlay_has_bit(const uint64_t set[OVERLAY_GROUP / 64], uint32_t slot)
{
	return set[slot % OVERLAY_GROUP / 64] >> slot % 64 & 1;
}

static inline void overlay_set_bit(uint64_t set[OVERLAY_GROUP / 64], uint32_t slot)
{
	set[slot % OVERLAY_GROUP / 64] |= (uint64_t)1 << slot % 64;
}

/* Takes at most n free slots that are consecutive in the file: *first. Returns how many, or a
 * negative errno value: -ENOSPC at the limit. */
int overlay_take(struct overlay *o, unsigned n, uint32_t *first);
/* Frees slots that were taken and never published. */
void overlay_give_back(struct overlay *o, uint32_t first, unsigned n);
/* Makes a taken slot, whose block was written, the newest contents of a block. */
void overlay_publish(struct overlay *o, uint32_t slot, uint64_t block, uint64_t data);
/* Puts a slot into the list of those that commit `number` makes old. */
void overlay_make_old(struct overlay *o, uint32_t slot, uint64_t number);
/* Empties a slot of the policy cache. It is free when a commit says so, and its readers have left.
 */
void overlay_empty(struct overlay *o, uint32_t slot);
/* Puts a changed slot, and its group, into the sets of the next commit. */
void overlay_mark_changed(struct overlay *o, uint32_t slot);
/* Retires the old slots of all commits up to the floor, but holds those of commits after `hold`. */
void overlay_release(struct overlay *o);
/* Ends `hold`, and retires what was held. */
void overlay_end_hold(struct overlay *o);
void overlay_retire(struct overlay *o, uint32_t slot);
/* Makes retired slots free, if their readers have left. */
void overlay_reclaim(struct overlay *o);
/* Has memory for at least so many groups. */
int overlay_add_groups(struct overlay *o, uint32_t ngroups);
/* Forgets all slots, and frees their memory: no slot is in use. */
void overlay_forget_groups(struct overlay *o);
/* Forgets the index, too. There are no readers. */
void overlay_forget_slots(struct overlay *o);
/* Whether all slots are free. */
bool overlay_is_empty(struct overlay *o);
/* Makes a slot, which the caller has taken, a cut, which supersedes all blocks and cuts from
 * `block` on. */
void overlay_publish_cut(struct overlay *o, uint32_t slot, uint64_t block);
/* Notes the cuts of all slots, before blocks are loaded. */
void overlay_note_cuts(struct overlay *o);
/* Forgets cuts whose slots have become free while blocks were loaded. */
void overlay_forget_free_cuts(struct overlay *o);
/* Whether a block or a cut of a commit is superseded by a cut. */
bool overlay_is_cut(const struct overlay *o, uint64_t block, uint64_t commit);

/* Without the lock: what the index says stays valid from enter to leave. */
unsigned overlay_enter(struct overlay *o);
void overlay_leave(struct overlay *o, unsigned ticket);

/* ---- commit.c ---- */

/* Commits all changes. Returns 0; a positive errno value: not durable, but nothing is lost; or a
 * negative one. */
int overlay_commit(struct overlay *o);
/* As overlay_commit, but makes no commit if there are no changes. */
int overlay_commit_changes(struct overlay *o);
/* Writes o->head into both slots, durably; under file_lock. */
int overlay_write_head(struct overlay *o);
/* From now on only the newest commit may be opened. */
int overlay_forget_commits(struct overlay *o);
/* Whether the store has all contents, and no slot is in use. */
bool overlay_is_unused(struct overlay *o);
/* Begins the file anew and makes it shorter, if all blocks are in the store and nothing has
 * changed; otherwise does nothing. */
int overlay_begin_anew(struct overlay *o);

/* ---- tail.c: the tail of the store ---- */

/* Length of a run that is worth a flush of the store. Tests set it. */
extern size_t overlay_tail_bytes;
/* Has writes go to the tail from now on, if the store allows it. */
void overlay_use_tail(struct overlay *o);
/* Whether whole blocks are written to the tail. */
bool overlay_is_for_tail(struct overlay *o, uint64_t off, size_t bytes);
int overlay_write_tail(struct overlay *o, const struct iovec *iov, int n, uint64_t off,
		       size_t bytes);
/* Flushes what was written to the tail (order 16). */
int overlay_flush_tail(struct overlay *o);
/* Cuts off what was written to the tail after the newest commit. Then makes the store at least so
 * long. */
int overlay_cut_tail(struct overlay *o, uint64_t length);
/* For a file with OVERLAY_TAIL: cuts off the tail, or hides it if the handle is for reading. All
 * errors have a message. */
int overlay_cut_found_tail(struct overlay *o, struct ummap_geom *geom);

/* ---- send.c: requests to the store ---- */

/* Blocks of 4 KiB of the file that are written to a store. */
struct overlay_sending {
	struct overlay *o;
	struct behind *store;
	uint64_t size;             /* bytes of the store: none behind them is written */
	unsigned max_senders;      /* requests at a time, if the crew has enough threads */
	/* Examines n blocks before they are written; NULL: nothing does. */
	int (*check)(struct overlay_sending *s, uint64_t first, uint64_t n, const char *blocks);
	/* Notes an error of reading the slot with a block, which is left out; NULL: the error ends
	 * the call. */
	void (*skip)(struct overlay_sending *s, uint64_t block, int err);
	/* Writes to the store; NULL: behind_write does. */
	int (*write)(struct overlay_sending *s, const void *buf, size_t len, uint64_t off);
	struct blockmap places;    /* offsets in the file of the blocks of the store */
	uint64_t next;             /* no block before this one is left; under the lock */
	_Atomic uint32_t lock;
	_Atomic int err;           /* first error, after which no request begins */
};

/* Starts n threads for overlay_send if the store allows several requests at a time. */
void overlay_gather_crew(struct overlay *o, unsigned n);
/* Ends the threads, of which a forked child has none. */
void overlay_dismiss_crew(struct overlay *o);
/* Writes all blocks, one call at a time. `places` does not change meanwhile. Returns the first
 * error. */
int overlay_send(struct overlay_sending *s);
/* Makes a store at least so long. */
int overlay_lengthen_store(struct behind *store, uint64_t size);
/* Shortens a store that is longer than `size`. If the store cannot be shortened, its bytes from
 * `size` on become zeros. */
int overlay_shorten_store(struct behind *store, uint64_t size);

/* ---- apply.c: writing to the store, by one thread at a time ---- */

/* Writes the cuts and the blocks of commit `number` (home < number <= floor) to a store, in order,
 * verified, makes the store as long as at that commit, and flushes it. Allocates memory. -EBADMSG:
 * a block differs from its sum, and *block is its number. The header stays as it is. The caller
 * must have set o->hold to `number` before, under the lock. */
int overlay_apply(struct overlay *o, uint64_t number, struct behind *store, uint64_t *block);
/* After overlay_apply: makes `home` durable, removes the blocks from the index unless they have
 * changed since, retires their slots, and ends `hold`. */
int overlay_set_home(struct overlay *o, uint64_t number);

/* ---- transfer.c: calls of a driver, with an overlay as the handle ---- */

int overlay_read(void *h, void *buf, size_t len, uint64_t off);
int overlay_readv(void *h, const struct iovec *iov, int n, uint64_t off);
int overlay_write(void *h, const void *buf, size_t len, uint64_t off);
int overlay_writev(void *h, const struct iovec *iov, int n, uint64_t off);
int overlay_size(void *h, uint64_t *size);
int overlay_submit(void *h, struct ummap_io **io, unsigned n);
int overlay_reap(void *h, struct ummap_io **done, unsigned max, unsigned min);
int overlay_lock(void *h, uint64_t off, uint64_t len, int how, char why[160]);
/* Does nothing: changes since the last flush are of no use before the next one. */
int overlay_push(void *h);
void overlay_set_notice(void *h, ummap_notice *notice, void *arg);
/* Makes the store at least so long; takes the lock. */
void overlay_grow(struct overlay *o, uint64_t end);
/* Makes the store shorter, as of the next commit, without a write to it. */
int overlay_shorten(struct overlay *o, uint64_t size);

#endif
