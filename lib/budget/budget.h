/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that mappings may use: limits, charges, and the questions whether there is room. Only
 * this folder compares bytes with a limit. The pool (memory/frame.c) alone applies the limit that
 * it is given, because it must do so under its own lock.
 *
 * Limits. All processes of a memory group (of the node) share one limit, UMMAP_MEM_LIMIT. Each
 * process has a budget, its part of the limit, which share.c sets. A mapping or group that has a
 * budget of its own has an account with that limit. All other mappings share the common account,
 * which the budget of the process alone limits. Each mapping needs MIN_FRAMES frames to make
 * progress, even if they exceed a budget. These bytes are the argument `least`.
 *
 * Charges. A frame is charged to the account of its mapping by account_charge, before the thread
 * that needs the frame has one, and refunded when the frame leaves the mapping. If one mapping
 * takes the frame of another mapping of the same account, the charge passes on with the frame. The
 * twin of a segment is charged, too. The pool counts the memory of all frames, free ones included
 * (frame_held); the budget of the process limits this number. A page-cache mapping is charged to
 * its account and to the process before the kernel maps its pages, and refunded after they are
 * unmapped. Pinned bytes are a part of the charged frames, and so are bytes of dirty segments. Node
 * copies are memory of several processes: each process counts its part of them.
 *
 * Frames in files (place_has_file in base/place.h) are charged to accounts, whose limits hold for
 * them, too; but they are no memory of the process, and the tier of the file has its own limit.
 *
 * Questions, and who asks them:
 * - Is there room for n more bytes? account_has_room, budget_has_room (eviction, faults), and
 *   budget_has_total_room (page-cache mappings, the background thread).
 * - How many bytes of frames must be freed? budget_excess, account_exceeds_limit (the background
 *   thread, and eviction after a page-cache mapping has been made).
 * - Which account gives up a segment? account_choose_giver (eviction).
 * - May changes that cannot be written stay in memory beyond the budget? account_must_stall
 *   (stores, while writes fail).
 * - How much may be read ahead? account_readahead_room, account_prefetch_room.
 * - May these bytes be pinned, or mapped from the page cache? account_can_pin,
 *   account_charge_pagecache.
 *
 * Locks: the numbers are atomic. account_charge compares and adds in one step, so threads cannot
 * exceed a limit together. account_charge_pagecache adds first, compares, and subtracts if the
 * limit is exceeded, so of two threads at least one sees the other's bytes. One leaf lock protects
 * the list of accounts.
 */
#ifndef BUDGET_H
#define BUDGET_H

#include "base/sys.h"

#include <ummap-policy.h>

/* The number of frames that a mapping needs at least: one instruction may access as many segments,
 * and with fewer frames it would fault without end. */
#define MIN_FRAMES 4

/* a - b, or 0 if that is negative. */
static inline size_t subtract_size(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

/* ---- The process ---- */

/* Reads the settings, and the memory of the machine. Returns 0, or -EINVAL with a message: the
 * limit is not valid on this machine. */
int budget_start(void);
/* In a forked child: nothing is charged, and only the common account exists. */
void budget_fork_child(void);
/* For share.c: sets the budget. The process can get `share` bytes sooner or later. */
void budget_set(size_t bytes, size_t share);

/* Numbers for messages and counters: the limit of all processes of the memory group; the budget
 * of this process; the greatest excess of frames over the greatest budget. */
size_t budget_limit(void);
size_t budget_bytes(void);
size_t budget_peak_excess(void);
/* Whether the process can get a budget of more than `bytes` sooner or later. */
bool budget_can_exceed(size_t bytes);

/* Bytes of frames, page-cache mappings and parts of node copies of the process. */
size_t budget_held(void);
/* The parts of node copies. They may use the bytes that frames and page-cache mappings leave, and
 * at least half of the budget. budget_gift: the bytes for one of n copies, of which the process has
 * `part`. */
void budget_set_copies(size_t bytes);
size_t budget_copies(void);
size_t budget_gift(size_t part, size_t n);
/* Whether `bytes` more fit into the budget. */
bool budget_has_total_room(size_t bytes);
/* Bytes of frames that the process may hold, for the sake of a mapping that needs `least` bytes.
 * Page-cache mappings that can be unmapped leave the frames that a mapping needs. */
size_t budget_frame_limit(size_t least);
/* Bytes of frames within that limit beside `bytes` of them. */
size_t budget_room_beside(size_t bytes, size_t least);
/* Whether `bytes` more of frames are within that limit, and how many bytes exceed it. */
bool budget_has_room(size_t bytes, size_t least);
size_t budget_excess(size_t least);
/* Bytes that a thread may hold twice for a moment while it moves several segments by one call; and
 * the limit on frames that this permits. */
size_t budget_batch_bytes(size_t least);
size_t budget_batch_limit(size_t least);
/* Whether page-cache mappings have more than the part of the budget that is always theirs; and
 * whether they have more than they may have beside the frames. */
bool budget_can_unmap_pagecache(void);
bool budget_must_unmap_pagecache(void);
/* Returns the size of the segments of a mapping of `size` bytes if the library chooses it: a page,
 * or more, up to DEFAULT_SEG_SIZE, so that the headers of the segments, of `header` bytes each, do
 * not take too much memory beside the frames. own_budget: that of the mapping, or 0. */
size_t budget_smallest_segment(size_t size, size_t own_budget, size_t header);
/* Returns the size of the segments of a mapping if nobody has chosen it and transfers cannot adapt:
 * DEFAULT_SEG_SIZE, or less if the memory of the mapping is small. own_budget as above. */
size_t budget_default_segment(size_t own_budget);
/* Warns, once for each reason, if a new mapping NAME has a smaller or larger budget than
 * configured. own_budget: that of the mapping or its group, or 0. */
void budget_warn(const char *name, size_t own_budget, size_t least, size_t seg_size);

/* ---- Accounts ---- */

/* Mappings that have a budget in common. */
struct account {
	struct {
		_Atomic size_t limit;     /* bytes that the account may hold, or SIZE_MAX */
		_Atomic size_t frames;    /* bytes of frames that it holds or was promised */
		_Atomic size_t pagecache; /* bytes of page-cache mappings */
		_Atomic size_t pinned;    /* bytes of pinned segments */
	} charges;                        /* numbers that only this folder reads and writes */
	struct account *next;             /* link of the list of accounts */

	/* cache.c, under its lock; other files only read the counters. */
	_Atomic size_t clean, dirty_inactive, ahead; /* bytes of each kind of inactive segments */
	_Atomic size_t dirty;             /* bytes of dirty segments, twins included */
	_Atomic size_t arrivals;          /* segments that ever became resident: a clock */
	size_t resident;                  /* resident segments */
	struct ummap_node groups;         /* ring of groups, which are visited in turn */
	size_t group_count;

	/* paging/ */
	struct ummap_node pagecache_runs; /* pagecache.c: ring of runs, oldest first */
	_Atomic size_t coming;            /* readahead.c, prefetch.c: bytes that jobs will read */
	_Atomic size_t readahead_cut;     /* bytes by which readahead is reduced */
	_Atomic bool supplying;           /* evict.c: a job deactivates segments */
	_Atomic bool stuck;               /* evict.c: a thread has waited in vain for a frame */
	_Atomic uint32_t commits;         /* commit.c: commits in flight, whose ends free memory */
};

/* The account of all mappings that have no budget of their own. */
struct account *account_common(void);
/* Adds an account to the list, and removes it. The account holds nothing. Its memory is reused for
 * accounts only, because a thread may still read it. */
void account_open(struct account *account);
void account_close(struct account *account);
static inline void account_set_limit(struct account *account, size_t bytes)
{
	account->charges.limit = bytes;
}

/* The n-th account, the common one first. NULL: there are fewer. */
struct account *account_nth(size_t n);

/* The bytes of frames that are charged; of pinned segments; and that the account may hold in all,
 * which is at most the budget of the process. */
static inline size_t account_frames(const struct account *account)
{
	return account->charges.frames;
}

static inline size_t account_pinned(const struct account *account)
{
	return account->charges.pinned;
}

size_t account_budget(const struct account *account);
/* The same, for a mapping that may have at most `most` bytes. */
size_t account_budget_within(const struct account *account, size_t most);
/* The bytes that the account might hold if the process had the limit of all processes. */
size_t account_most(const struct account *account);

/* Charges `bytes` of frames. Returns false if the account has no room for them. */
bool account_charge(struct account *account, size_t bytes);
/* Charges them without regard to the limit. */
static inline void account_charge_beyond(struct account *account, size_t bytes)
{
	account->charges.frames += bytes;
}

static inline void account_refund(struct account *account, size_t bytes)
{
	account->charges.frames -= bytes;
}

/* Charges page-cache mappings, which use the bytes that frames leave, and at least a part of the
 * budget. Returns false if that is exceeded. */
bool account_charge_pagecache(struct account *account, size_t bytes);
void account_refund_pagecache(struct account *account, size_t bytes);
/* Counts `bytes` of a segment that becomes pinned, or is no longer pinned. */
void account_count_pin(struct account *account, size_t bytes, bool is_pinned);

/* The bytes of frames that an account may hold beside its page-cache mappings. */
static inline size_t account_frame_limit(const struct account *account)
{
	return subtract_size(account->charges.limit, account->charges.pagecache);
}

/* Whether `bytes` more of frames are within the limit; and whether the frames of a mapping that
 * needs `least` bytes exceed it. */
static inline bool account_has_room(const struct account *account, size_t bytes)
{
	return account->charges.frames + bytes <= account_frame_limit(account);
}

bool account_exceeds_limit(const struct account *account, size_t least);
/* Whether an account holds more than a mapping of it needs. */
static inline bool account_can_give(const struct account *account, size_t least)
{
	return account->charges.frames > least;
}

/* For a mapping of `mine` that needs `least` bytes: the account that gives up a segment, if the
 * account has room and the process has none. */
struct account *account_choose_giver(struct account *mine, size_t least);
/* Whether a frame of `bytes` fits beside the pinned ones. */
bool account_fits_beside_pinned(const struct account *account, size_t bytes, size_t least);
/* Whether changes fill the account and the frames that are left are fewer than `least`. */
bool account_lacks_clean_frames(const struct account *account, size_t least);
/* Whether `bytes` more of dirty segments, which cannot be written, would exceed the bound on memory
 * beyond the budget. */
bool account_must_stall(const struct account *account, size_t bytes, size_t least);
/* Whether `bytes` more may be pinned. *limit: the bytes that may be pinned in all; *pinned: the
 * bytes that are pinned already. */
bool account_can_pin(const struct account *account, size_t bytes, size_t least, size_t *limit,
	size_t *pinned);

/* Whether the budget is large enough for page-cache mappings beside the frames. */
bool account_allows_pagecache(const struct account *account, size_t seg_size);
/* Whether page-cache mappings have more than the part of the account that is always theirs. */
bool account_can_unmap_pagecache(const struct account *account);
/* Whether the account and the process use at most half of their budgets. */
bool account_is_half_unused(const struct account *account);

/* Bytes that may be read ahead of one run; that all runs of the account may still read ahead; and
 * that a list of segments may take. most: bytes that the mapping may have. */
size_t account_readahead_window(const struct account *account, size_t most);
size_t account_readahead_room(const struct account *account, size_t most);
size_t account_prefetch_room(const struct account *account, size_t most);
/* Reduces the bytes that may be read ahead, because memory is short, and increases them again. */
void account_cut_readahead(struct account *account, size_t bytes);
void account_restore_readahead(struct account *account, size_t bytes);

#endif
