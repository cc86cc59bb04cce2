/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The form of an overlay file, version 1: a file that has blocks of a store in place of the store
 * itself. overlay.h says in which order its parts are written, and what a crash leaves.
 *
 *	0 B       header: two slots of 4 KiB (common/header.h), each with a struct overlay_head
 *	8 KiB     32 commit records, each in a sector of its own: number n is in sector n % 32
 *	24 KiB    acknowledgment: the number of a commit that was durable
 *	32 KiB    groups of 256 slots: table A and table B, with a record of 64 bytes for each slot,
 *	          then the blocks of the slots
 *
 * Groups begin at multiples of the block size, and so do their blocks: with blocks of more than
 * 32 KiB, zeros precede the first group, and follow the tables. A record that is all zeros was
 * never written. Numbers have the byte order of the machine that made the file; the magic numbers
 * do not match on a machine with the other one.
 */
#ifndef DRIVERS_OVERLAY_FORMAT_H
#define DRIVERS_OVERLAY_FORMAT_H

#include <stdint.h>

#include "../behind.h"
#include "common/header.h"

#define OVERLAY_MAGIC 0x31796c72766f6d75u        /* "umovrly1" */
#define OVERLAY_COMMIT_MAGIC 0x31746d6d636c766fu /* "ovlcmmt1" */
#define OVERLAY_COMMITS 32
#define OVERLAY_SECTOR ((uint64_t)512)
#define OVERLAY_COMMITS_AT ((uint64_t)8 << 10)
#define OVERLAY_ACK_AT ((uint64_t)24 << 10)
#define OVERLAY_GROUPS_AT ((uint64_t)32 << 10)
#define OVERLAY_GROUP 256                        /* slots of a group */
#define OVERLAY_URI 2048
#define OVERLAY_POLICY_BYTES 1024

#define OVERLAY_PART ((size_t)4096)              /* part of a block, which a slot has or lacks */

enum overlay_policy_id { OVERLAY_WAL = 1, OVERLAY_COW = 2, OVERLAY_CACHE = 3 };

/* The properties by which a store is recognized. */
struct store_facts {
	uint64_t id;                   /* inode number; 0: the store is no regular file */
	uint64_t size;                 /* bytes */
	uint64_t seconds, nanoseconds; /* time of the last write; 0: unknown */
	char name[256];                /* last component of the path */
};

/* Values of overlay_head.flags. */
#define OVERLAY_APPLYING 1 /* the store may have some of the blocks, and must get all of them */
#define OVERLAY_MIXED 2    /* the store has some of the blocks, and the file is valid for it */
#define OVERLAY_TOUCHED 4  /* the policy cache may have written the store since `store` was so */
#define OVERLAY_TAIL 8     /* the store may have bytes behind its end at the newest commit */

struct overlay_head {
	uint64_t salt;       /* random seed of all checksums behind the header */
	uint64_t policy;     /* filter of the file, an enum overlay_policy_id */
	uint64_t block;      /* bytes of a block */
	uint64_t slots_max;  /* maximum number of slots; 0: the file grows */
	uint64_t base;       /* number of the commit with which the file began, empty */
	uint64_t base_size;  /* bytes of the store at that commit */
	uint64_t home;       /* number of a commit all of whose contents are in the store */
	uint64_t home_slots; /* `slots` of that commit */
	uint64_t floor;      /* number of the oldest commit that may be opened, at least */
	uint64_t goal;       /* number + 1 of the commit that a recovery goes back to; 0: none */
	uint64_t flags;      /* OVERLAY_* bits */
	struct store_facts store; /* store, as it was when the file began or its flags changed */
	char way[BEHIND_WAY];     /* drivers behind the filter (behind_way); "": unknown */
	char uri[OVERLAY_URI];    /* URI of the store, for tools; "": unknown */
	char data[OVERLAY_POLICY_BYTES]; /* data of the policy */
};

/* A commit. Each `sum` is the checksum of all bytes before it, with the salt as the seed. */
struct overlay_commit {
	uint64_t magic;
	uint64_t number;
	uint64_t time;       /* nanoseconds since 1970 */
	uint64_t size;       /* bytes of the store */
	uint64_t floor;      /* number of the oldest commit that may be opened */
	uint64_t slots;      /* records with a block that the commits since `base` have written */
	uint64_t digest;     /* sums of all records that count, combined by exclusive or */
	uint64_t sum;
};

struct overlay_ack {
	uint64_t number;
	uint64_t sum;
};

#define OVERLAY_EMPTY UINT64_MAX /* block of a slot that has none */
#define OVERLAY_SUMMED 1         /* overlay_record.data is valid */
#define OVERLAY_DIRTY 2          /* the store does not have the block */
#define OVERLAY_DOUBTFUL 4       /* the store may have been written since: after a crash, the slot
				  * counts as empty */
#define OVERLAY_CUT 8            /* of cow: the record is a cut */

/* The contents of a slot since a commit. A cut has no contents: blocks from `block` on are zeros,
 * except those with a record that is at least as new as the cut. */
struct overlay_record {
	uint64_t block;      /* number of a block of the store; OVERLAY_EMPTY: none */
	uint64_t commit;     /* number */
	uint64_t valid[2];   /* in the first number, a bit for each part that the slot has */
	uint64_t data;       /* checksum of the block's bytes, without a seed */
	uint64_t slot;
	uint64_t flags;      /* OVERLAY_SUMMED, OVERLAY_DIRTY, OVERLAY_DOUBTFUL, OVERLAY_CUT */
	uint64_t sum;
};

#define OVERLAY_TABLE_BYTES (OVERLAY_GROUP * sizeof(struct overlay_record))

_Static_assert(sizeof(struct overlay_record) == 64, "records do not cross sectors");
_Static_assert(sizeof(struct overlay_commit) == 64, "commit records fit sectors");
_Static_assert(sizeof(struct overlay_head) <= HEADER_BODY_MAX, "the header fits its slot");

#endif
