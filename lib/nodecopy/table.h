/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of a node copy: one copy of the bytes of a store, in memory that several processes of
 * one user map. The table says which segments the copy has, and which process loads or drops a
 * segment. It is shared memory; any process may be killed at any instruction.
 *
 * Each segment has a word, each slot of the budget another one, and each pin a third one.
 *
 *   word of a segment                          word of a slot
 *   ABSENT    stamp and queue of its last      0                        free
 *             eviction
 *   LOADING   chances, owner, slot or NO_SLOT  TAKEN owner, segment     its owner loads it
 *   RESIDENT  chances, slot, may be pinned     segment, stamp           it is resident here
 *   EVICTING  owner, slot                      word of a pin
 *                                              0                        free
 *                                              TAKEN owner, segment     its owner pins it
 *
 * Rules:
 *  1. Only the owner of LOADING or EVICTING fills pages of the segment, or drops them. So a page is
 *     never dropped while another process fills it.
 *  2. A loader takes a slot before it fills a page, and the segment is RESIDENT only after all its
 *     pages are filled. So the copy has at most as many segments as there are slots, and those of
 *     killed loaders.
 *  3. An evictor drops pages only while the segment is EVICTING. A process that accesses a dropped
 *     page faults, and waits until the segment is ABSENT, or is loaded again.
 *  4. An owner is a holder with a generation. A holder keeps a lock on a byte of a file, which the
 *     kernel releases when the process ends or calls execve(2). Whoever meets a word of a dead
 *     owner takes the word over: pages that it finds there are whole and right, because pages
 *     appear as a whole and the store does not change.
 *  5. A slot whose segment is not RESIDENT there, and not LOADING or EVICTING there by a living
 *     owner, is free: its owner was killed between two words.
 *  6. A process that pins a segment writes the word of the pin first, and has pinned the segment
 *     when it finds it RESIDENT then. An evictor makes the segment EVICTING first, and then looks
 *     for pins. So at least one of the two sees the other. The pins of a dead owner do not count.
 *  7. Only slots below `limit` are taken, unless all of them are pinned or being loaded. The other
 *     slots are emptied by nodecopy_trim.
 *
 * Why the copy is read-only. Stores of one process could be visible to the others at once, because
 * the pages are the same. These parts are missing, which are more than the whole of this protocol:
 *  - A segment with stores must not be dropped: a fifth state, whose owner is the writer. An
 *    evictor that finds no other slot must ask the writer, so processes wait for one that does not
 *    load: rule 4 no longer suffices to free them.
 *  - A shared mapping of the kernel keeps the stores of a killed process. So another holder must
 *    write them, though it may have opened the file for reading only; and the last one that is
 *    killed loses them.
 *  - The file's time stamps no longer tell its version, because the writer changes them, and the
 *    copy is newer than the file. Another program's change could not be told from the writer's.
 *  - Dirty marks, twins, commits and checksums are in headers of one process (cache/header.h),
 *    which a mapping in place does not use.
 */
#ifndef NODECOPY_TABLE_H
#define NODECOPY_TABLE_H

#include "nodecopy/queues.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nodecopy_table {
	uint64_t magic;
	uint64_t segments, slots, pins; /* numbers of them */
	uint64_t seg_size;             /* bytes */
	uint64_t data_at;              /* offset of the first segment in the shared memory */
	_Atomic uint64_t limit;        /* number of slots that may be used now */
	_Atomic uint64_t filled;       /* number of slots that loads have taken since the limit
					  grew */
	struct nodecopy_queues queues; /* the order of evictions */
	_Atomic uint64_t loads;        /* number of loads since the copy began */
	_Atomic uint32_t changed;      /* changes when a waiting process should look again */
	_Atomic uint64_t words[];      /* for each segment, then each slot, then each pin */
};

/* A process's view of a table. */
struct nodecopy_view {
	struct nodecopy_table *table;
	uint64_t owner;                /* this process's holder and generation; never 0 */
	/* Whether the owner of a word still lives; called for other owners only. */
	bool (*lives)(const struct nodecopy_view *view, uint64_t owner);
	/* Drops the pages of a segment in all processes. */
	void (*drop)(const struct nodecopy_view *view, uint64_t segment);
};

/* Owners are numbers below this. */
#define NODECOPY_OWNERS ((uint64_t)1 << 28)
#define NODECOPY_MIN_SLOTS 16

/* Bytes of a table, in whole pages. */
size_t nodecopy_table_bytes(uint64_t segments, uint64_t slots);
/* Begins a table, in memory that is zero. */
void nodecopy_init(struct nodecopy_table *table, uint64_t segments, uint64_t slots);

enum nodecopy_claim {
	CLAIM_RESIDENT, /* the segment is in the copy: repeat the access */
	CLAIM_LOAD,     /* the caller is its owner: load it, and call nodecopy_done */
	CLAIM_BUSY,     /* another process, or thread, works on it; only without `wait` */
};

/* Why a segment is loaded. A segment that accesses in order need, or that a program prefetches,
 * takes the place of the oldest one: processes that read in order, one after the other, find it
 * in the copy. */
enum nodecopy_load { LOAD_AT_RANDOM, LOAD_IN_ORDER, LOAD_PREFETCH };

/* Claims a segment for loading, and takes a slot for it. wait: whether to wait for others. */
enum nodecopy_claim nodecopy_claim(const struct nodecopy_view *view, uint64_t segment,
				   enum nodecopy_load why, bool wait);
/* Ends the claims of n segments: all pages are filled, or, if not `loaded`, the segments are absent
 * again. */
void nodecopy_done(const struct nodecopy_view *view, uint64_t segment, size_t n, bool loaded);
/* Whether the copy has the segment, or another process works on it. */
bool nodecopy_has(const struct nodecopy_table *table, uint64_t segment);
/* Whether the segment is absent, and was evicted when `queues.clock` had the value
 * `clock`, or later. */
bool nodecopy_evicted_since(const struct nodecopy_table *table, uint64_t segment, uint32_t clock);
/* Pins a segment, once for each view: it is not evicted if nodecopy_keeps is true afterwards, until
 * nodecopy_unpin. nodecopy_pin returns false if there are too many pins. nodecopy_keeps returns
 * false if the caller must load the segment and ask again. */
bool nodecopy_pin(const struct nodecopy_view *view, uint64_t segment);
bool nodecopy_keeps(const struct nodecopy_view *view, uint64_t segment);
void nodecopy_unpin(const struct nodecopy_view *view, uint64_t segment);
/* Sets the number of slots that may be used. */
void nodecopy_set_limit(struct nodecopy_table *table, uint64_t slots);
/* Whether the next load evicts a segment, though a larger limit would leave it in memory. */
bool nodecopy_is_full(struct nodecopy_table *table);
/* Evicts segments from slots that the limit excludes. */
void nodecopy_trim(const struct nodecopy_view *view);
/* The number of segments that the copy has now. */
uint64_t nodecopy_count(const struct nodecopy_table *table);

#endif
