/* SPDX-License-Identifier: BSD-3-Clause */
/* How mappings share the process's budget: what they hold together, and who has to give. */
#ifndef SHARE_H
#define SHARE_H

#include "base/sys.h"

#include <ummap-policy.h>

/* Frames that are charged together: a group with a budget has a share of its own, all others have one in
 * common. */
struct share {
	_Atomic size_t most;          /* bytes that it may hold; SIZE_MAX: the process's budget is the only bound */
	_Atomic size_t bytes;         /* ... that it holds, or has been promised */
	_Atomic size_t pinned;        /* ... of them pinned */
	_Atomic size_t clean, unwritten, ahead; /* ... on standby lists; the cache's */
	_Atomic size_t coming;        /* ... that jobs are going to read ahead (ahead.c) */
	_Atomic size_t ahead_less;    /* ... by which all may have less of that than the most (ahead.c) */
	_Atomic bool supplying;       /* evict.c's: a job fills up what is on standby */
	size_t resident;              /* the cache's: segments in the view */
	uint64_t came;                /* ... that ever came there: a clock */
	struct ummap_node groups;     /* the cache's: a ring that goes round */
	size_t group_count;
	struct ummap_node link;       /* in the list of shares */
};

/* Of all groups that have no budget. */
struct share *share_common(void);
/* One that holds nothing begins and ends. Its memory stays a share's for ever: a late look is harmless. */
void share_open(struct share *share);
void share_close(struct share *share);
/* In a forked child: there is but the common one, and it holds nothing. */
void share_forget(void);

/* Promises len bytes more; false: that is more than it may hold. */
bool share_charge(struct share *share, size_t len);

/* Where `mine` may hold more, but the process may not (`all` bytes): the one that has to give. Nobody has to
 * who would be left with less than `least`. */
struct share *share_giver(struct share *mine, size_t all, size_t least);
/* The n-th one, the common one first; NULL: there are fewer. */
struct share *share_nth(size_t n);

#endif
