/* SPDX-License-Identifier: BSD-3-Clause */
/* The lists of resident and inactive segments, and the choice of the next segment to evict. */
#ifndef CACHE_H
#define CACHE_H

#include "cache/list.h"
#include "cache/header.h"
#include "budget/budget.h"

/* Mappings under one policy: those of a named group, or a single mapping. */
struct group {
	struct account *account;      /* account of its frames: `own`, or the common one */
	struct account own;           /* account, if the group has a budget */
	size_t budget;                /* bytes that its attributes request; 0: none */
	const struct ummap_policy *policy;
	void *p;                      /* object of the policy */
	size_t len;                   /* bytes of most of its frames */
	struct ummap_node clean, ahead; /* lists of inactive segments, oldest first */
	struct ummap_node ahead_old;  /* list of those read ahead before `ahead_since` */
	uint64_t ahead_since;         /* time of the account's clock (account.arrivals) */
	size_t resident, dirty;       /* resident segments, and the dirty ones of them */
	uint64_t mean;                /* average time at which its segments became resident */
	struct ummap_node members;    /* ring of its mappings */
	size_t member_count, hidden;  /* mappings, and those of them that are hidden */
	struct ummap_node link;       /* link of the account's ring */
};

/* A mapping in the lists. Only cache.c changes the fields after the mapping has joined a group. */
struct member {
	struct group *group;
	size_t len;                   /* bytes of a frame */
	size_t least;                 /* bytes that the mapping needs; set before it joins */
	size_t cluster;               /* frames that one call moves at most; set before it joins */
	struct ummap_node dirty_list; /* dirty inactive segments, oldest first */
	size_t resident, dirty, inactive, dirty_inactive, ahead; /* numbers of segments */
	unsigned tiers;               /* tiers between which its segments move, a bit for each; set
					 before it joins */
	bool hidden;                  /* its segments are not evicted at the moment */
	_Atomic uint64_t retry;       /* time (ms) before which no dirty segment is written */
	struct ummap_node link;       /* link of the group's ring */
};

/* The list for a segment that becomes inactive. */
enum inactive {
	INACTIVE_CLEAN,  /* the end of the list of clean segments, which is reclaimed last */
	INACTIVE_FIRST,  /* the beginning of that list */
	INACTIVE_DIRTY,
	INACTIVE_AHEAD
};

/* Opens and closes a group, which has no members. Its memory is reused for groups only, because a
 * thread may still read it. */
void cache_open(struct group *g, const struct ummap_policy *policy, void *p, size_t budget,
	size_t len);
void cache_close(struct group *g);
void cache_join(struct member *m, struct group *g, size_t len);
void cache_leave(struct member *m);
/* Records that the n headers from segs on belong to m; and that none do any longer. Returns false
 * if there is no memory. */
bool cache_add_headers(struct member *m, const struct seg *segs, size_t n);
void cache_remove_headers(struct member *m);
/* Hides a mapping, whose segments are then not evicted, or shows it again. */
void cache_hide(struct member *m, bool hidden);
/* In a forked child, in which there are no members. */
void cache_fork_child(void);

/* Adds a locked segment that has become resident. */
void cache_insert(struct member *m, struct seg *s, enum ummap_event why);
/* Reports an event of a resident segment. */
void cache_touch(struct member *m, struct seg *s, enum ummap_event why);
/* Removes a segment that is no longer resident or inactive. */
void cache_remove(struct member *m, struct seg *s);
/* The label that the policy gives a resident segment. 0: none, or the program is not expected to
 * use the segment again. */
unsigned cache_label(const struct member *m, struct seg *s);
/* Reports that a segment, which was removed, has lost its frame. The policy learns of it only if
 * the program has `used` the segment. */
void cache_note_absent(struct member *m, struct seg *s, bool used);
/* Adds segments, which were removed, to a list of inactive segments. Neighbours stay together. */
void cache_deactivate(struct member *m, struct seg *s, enum inactive how);
void cache_deactivate_all(struct member *m, struct seg **list, unsigned n, enum inactive how);

/* Locks a segment of which the caller knows only the address, which may be outdated. *from: its
 * mapping, which is not hidden. Returns false if there is no such segment, or it is locked. */
bool cache_lock_user(struct seg *s, struct member **from);

/* Kinds of segments that can give their frames. */
enum cache_kind {
	CACHE_CLEAN,           /* inactive and clean */
	CACHE_AHEAD,           /* read ahead, and not accessed yet */
	CACHE_RESIDENT,
	CACHE_RESIDENT_CLEAN
};

/* Takes a segment of the account out of its list, and locks it. `wanted` is the mapping that needs
 * a frame. *from: the mapping of the segment. Returns NULL if there is none now. */
struct seg *cache_take_segment(struct account *account, enum cache_kind kind,
	const struct member *wanted, struct member **from);
/* Takes resident segments of at least `bytes` together, at most n, in the order of eviction, and
 * the rest of the last one's cluster if the policy proposes it next, at most `most` in all. Returns
 * their number. */
unsigned cache_take_victims(struct account *account, const struct member *wanted, size_t bytes,
	struct seg **list, struct member **from, unsigned n, unsigned most);
/* Takes n resident segments from `segs` on, which belong to `from`, if all are of a kind and can be
 * evicted. The caller has locked and taken `taken`, which is one of them. Returns false if no other
 * one was taken. */
bool cache_take_block(struct account *account, const struct member *wanted, struct member *from,
	struct seg *segs, size_t n, const struct seg *taken, enum cache_kind kind);
/* Locks the oldest dirty inactive segment of an account, of mapping m unless that is NULL. The
 * segment stays in its list. */
struct seg *cache_lock_dirty_inactive(struct account *account, struct member *m, uint64_t now,
	struct member **from);

/* Bytes of a mapping's segments that are resident, inactive (of any kind), and dirty. */
struct cache_bytes {
	size_t resident, inactive, dirty;
};

struct cache_bytes cache_count_bytes(const struct member *m);

#endif
