/* SPDX-License-Identifier: BSD-3-Clause */
/* Which segments are resident (mapped), which are inactive, and which is evicted or reclaimed next. */
#ifndef CACHE_H
#define CACHE_H

#include "cache/list.h"
#include "cache/header.h"
#include "cache/account.h"

/* An instruction may touch this many segments at once; with fewer frames it would fault for ever. */
#define FRAMES_MIN 4

/* Mappings under one policy: those of a named group, or a single mapping. */
struct group {
	struct account *account;          /* its own, or the common one */
	struct account own;
	size_t budget;                /* as requested; 0: none */
	const struct ummap_policy *policy;
	void *p;                      /* the policy's object */
	size_t len;                   /* of most of its frames */
	struct ummap_node clean, ahead; /* inactive lists, oldest first */
	struct ummap_node unasked;    /* ... of segments read ahead before `ahead_since` and not accessed since */
	uint64_t ahead_since;         /* by its account's clock */
	size_t resident, dirty;     /* segments mapped, and how many of them are dirty */
	uint64_t mean;                /* when its resident segments were mapped, on average, in faults of the process */
	struct ummap_node members;
	size_t member_count, hidden;  /* mappings, and how many of them are exempt from eviction at the moment */
	struct ummap_node link;       /* in its account */
};

/* The cache's part of a mapping. Only the cache changes the fields once the mapping has joined. */
struct member {
	struct group *group;
	size_t len;                   /* of a frame */
	size_t least;                 /* bytes that its mapping needs at least; set by the mapping before it joins */
	size_t cluster;               /* how many frames move by one call at most; set by the mapping before it joins */
	struct ummap_node dirty_list; /* dirty inactive segments, oldest first */
	size_t resident, dirty, inactive, dirty_inactive, ahead; /* segments, as in group and account */
	bool hidden;                  /* exempt from eviction at the moment */
	_Atomic uint64_t retry;       /* do not write a dirty segment before this time, because the last write failed */
	struct ummap_node link;       /* in its group */
};

/* Which list an inactive segment is in. */
enum inactive {
	INACTIVE_CLEAN,  /* at the end: reclaimed last */
	INACTIVE_FIRST,  /* clean, reclaimed first */
	INACTIVE_DIRTY,
	INACTIVE_AHEAD
};

/* Open and close a group, which has no members. Its memory is never reused for anything else: a late reader finds a
 * group. */
void cache_open(struct group *g, const struct ummap_policy *policy, void *p, size_t budget, size_t len);
void cache_close(struct group *g);
void cache_join(struct member *m, struct group *g, size_t len);
void cache_leave(struct member *m);
/* The n headers from segs on belong to m, until it disowns all of its headers. false: no memory. */
bool cache_own(struct member *m, const struct seg *segs, size_t n);
void cache_disown(struct member *m);
/* The segments of a hidden member are not picked, for any purpose. */
void cache_hide(struct member *m, bool hidden);
/* In a forked child: there are no members. */
void cache_forget(void);

/* The segment, which the caller has locked, became resident. */
void cache_insert(struct member *m, struct seg *s, enum ummap_event why);
/* Something happened to a resident segment. */
void cache_touch(struct member *m, struct seg *s, enum ummap_event why);
/* A resident or inactive segment stops being so. */
void cache_remove(struct member *m, struct seg *s);
/* What its policy says of a resident segment; 0: nothing, or that no other use of it is expected. */
unsigned cache_label(const struct member *m, struct seg *s);
/* A segment that was removed has left memory, too. */
void cache_gone(struct member *m, struct seg *s);
/* A segment that was removed becomes inactive; and several neighbours, which stay together in the list. */
void cache_deactivate(struct member *m, struct seg *s, enum inactive how);
void cache_deactivate_all(struct member *m, struct seg **list, unsigned n, enum inactive how);

/*
 * The inactive segment of an account to reclaim: locked, and removed from its list. `wanted` is the mapping that needs
 * a frame. *from: the mapping that it belongs to. NULL: there is none now.
 */
struct seg *cache_reclaim(struct account *account, const struct member *wanted, struct member **from);
/* A resident segment to deactivate; with `clean`, only a clean one. */
struct seg *cache_victim(struct account *account, const struct member *wanted, bool clean, struct member **from);
/* Resident segments of at least `bytes` together, at most n, in the order of eviction; and, if the policy continues
 * with it, the rest of the last one's cluster, at most `most` in all. Returns how many. */
unsigned cache_victims(struct account *account, const struct member *wanted, size_t bytes, struct seg **list,
		       struct member **from, unsigned n, unsigned most);
/* A segment that was read ahead and not accessed yet: reclaimed before it was used. */
struct seg *cache_reclaim_ahead(struct account *account, const struct member *wanted, struct member **from);
/* The oldest dirty inactive segment, locked; it stays in its list. Of m, or of any mapping of an account. */
struct seg *cache_dirty_inactive(struct member *m, uint64_t now);
struct seg *cache_dirty_inactive_any(struct account *account, uint64_t now, struct member **from);
/* Bytes of a mapping that are mapped, inactive (of any kind), and dirty. */
struct cache_bytes {
	size_t resident, inactive, dirty;
};

struct cache_bytes cache_count(const struct member *m);
/* Bytes of memory for dirty segments of all mappings. */
size_t cache_dirty(void);

#endif
