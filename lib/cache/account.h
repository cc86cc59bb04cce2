/* SPDX-License-Identifier: BSD-3-Clause */
/* How mappings share the process's budget: what they hold together, and who has to give. */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include "base/sys.h"

#include <ummap-policy.h>

/* Frames that are charged together: a group with a budget has an account of its own, all others have one in
 * common. */
struct account {
	_Atomic size_t most;          /* bytes that it may hold; SIZE_MAX: the process's budget is the only bound */
	_Atomic size_t bytes;         /* ... that it holds, or has been promised */
	_Atomic size_t pinned;        /* ... of them pinned */
	_Atomic size_t clean, dirty_inactive, ahead; /* ... inactive lists; the cache's */
	_Atomic size_t coming;        /* ... that jobs are going to read ahead (readahead.c) */
	_Atomic size_t ahead_less;    /* ... by which all may have less of that than the most (readahead.c) */
	_Atomic bool supplying;       /* evict.c's: a job fills up what is inactive */
	size_t resident;              /* the cache's: segments mapped */
	uint64_t came;                /* ... that ever came there: a clock */
	struct ummap_node groups;     /* the cache's: a ring that goes round */
	size_t group_count;
	struct ummap_node link;       /* in the list of accounts */
};

/* Of all groups that have no budget. */
struct account *account_common(void);
/* One that holds nothing begins and ends. Its memory stays an account's for ever: a late look is harmless. */
void account_open(struct account *account);
void account_close(struct account *account);
/* In a forked child: there is but the common one, and it holds nothing. */
void account_forget(void);

/* Promises len bytes more; false: that is more than it may hold. */
bool account_charge(struct account *account, size_t len);

/* Where `mine` may hold more, but the process may not (`all` bytes): the one that has to give. Nobody has to
 * who would be left with less than `least`. */
struct account *account_giver(struct account *mine, size_t all, size_t least);
/* The n-th one, the common one first; NULL: there are fewer. */
struct account *account_nth(size_t n);

#endif
