/* SPDX-License-Identifier: BSD-3-Clause */
/* How mappings share the process's budget: what each account holds, and from which one a segment is evicted. */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include "base/sys.h"

#include <ummap-policy.h>

/* Frames that are charged together: a group with a budget has an account of its own, all other mappings share the
 * common one. */
struct account {
	_Atomic size_t most;          /* bytes that it may hold; SIZE_MAX: the process's budget is the only bound */
	_Atomic size_t bytes;         /* ... that it holds or was promised */
	_Atomic size_t pinned;        /* ... of them pinned */
	_Atomic size_t pagecache;     /* bytes of page-cache mappings, within `most`, too */
	struct ummap_node pagecache_runs; /* pagecache.c: a ring of runs, oldest first */
	_Atomic size_t clean, dirty_inactive, ahead; /* ... of each kind of inactive segments; changed by the cache */
	_Atomic size_t coming;        /* ... that queued jobs will read ahead (readahead.c) */
	_Atomic size_t ahead_less;    /* ... by which the bound on readahead is reduced (readahead.c) */
	_Atomic bool supplying;       /* evict.c: a job deactivates segments, to have enough inactive ones */
	_Atomic bool stuck;           /* ... a thread has waited in vain for others to be done with their frames */
	size_t resident;              /* cache.c: mapped segments */
	_Atomic uint64_t came;        /* ... that were ever mapped: serves as a clock */
	struct ummap_node groups;     /* cache.c: a ring, visited in turn */
	size_t group_count;
	struct ummap_node link;       /* in the list of accounts */
};

/* The account of all groups that have no budget. */
struct account *account_common(void);
/* Open and close an account, which holds nothing. Its memory is never reused for anything else: a late reader finds an
 * account. */
void account_open(struct account *account);
void account_close(struct account *account);
/* In a forked child: only the common account exists, and it holds nothing. */
void account_forget(void);

/* Bytes of frames that the account may hold: `most` without its page-cache mappings. */
static inline size_t account_frames(const struct account *account)
{
	size_t most = account->most, taken = account->pagecache;

	return most > taken ? most - taken : 0;
}

/* Promises len more bytes; false: that is more than the account may hold. */
bool account_charge(struct account *account, size_t len);

/* Where `mine` may hold more, but the process may not (`all` bytes): the account from which to evict. Never one that
 * would be left with less than `least`. */
struct account *account_giver(struct account *mine, size_t all, size_t least);
/* The n-th account, the common one first; NULL: there are fewer. */
struct account *account_nth(size_t n);

#endif
