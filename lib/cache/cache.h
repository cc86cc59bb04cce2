/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is resident, who is inactive, who goes next. */
#ifndef CACHE_H
#define CACHE_H

#include "cache/list.h"
#include "cache/header.h"
#include "cache/account.h"

/* An instruction may touch this many segments at once; with fewer it would never get on. */
#define FRAMES_MIN 4

/* Mappings under one policy: those of a named group, or one that stands alone. */
struct group {
	struct account *account;          /* its own, or the common one */
	struct account own;
	size_t budget;                /* as it was asked for; 0: none */
	const struct ummap_policy *policy;
	void *p;                      /* the policy's object */
	size_t len;                   /* of most of its frames */
	struct ummap_node clean, ahead; /* inactive lists, oldest first */
	struct ummap_node unasked;    /* ... of what was read ahead before `ahead_since` */
	uint64_t ahead_since;         /* by its account's clock */
	size_t resident, dirty;     /* segments mapped, and how many of them are dirty */
	uint64_t mean;                /* about when its resident segments came, in faults of the process */
	struct ummap_node members;
	size_t member_count, hidden;  /* mappings, and how many of them give nothing just now */
	struct ummap_node link;       /* in its account */
};

/* The cache's part of a mapping. All fields are the cache's once it has joined. */
struct member {
	struct group *group;
	size_t len;                   /* of a frame */
	size_t least;                 /* bytes with which its mapping gets on; its mapping's, before it joins */
	size_t cluster;                 /* so many frames at most move by one call; its mapping's, before it joins */
	struct ummap_node dirty_list;      /* what waits to be written, oldest first */
	size_t resident, dirty, inactive, dirty_inactive, ahead; /* segments, as in group and account */
	bool hidden;                  /* gives nothing just now */
	_Atomic uint64_t retry;       /* no write of a dirty one before this time: the last one failed */
	struct ummap_node link;       /* in its group */
};

/* Where a segment stands when it is inactive. */
enum inactive {
	INACTIVE_CLEAN,  /* at the end: let go last */
	INACTIVE_FIRST,  /* clean, let go first */
	INACTIVE_DIRTY,
	INACTIVE_AHEAD
};

/* A group without members begins and ends. Its memory stays a group's for ever: a late look is harmless. */
void cache_open(struct group *g, const struct ummap_policy *policy, void *p, size_t budget, size_t len);
void cache_close(struct group *g);
void cache_join(struct member *m, struct group *g, size_t len);
void cache_leave(struct member *m);
/* The n headers from segs on are m's, until it disowns all that it has. false: no memory. */
bool cache_own(struct member *m, const struct seg *segs, size_t n);
void cache_disown(struct member *m);
/* A hidden member's segments are not picked, for any purpose. */
void cache_hide(struct member *m, bool hidden);
/* In a forked child: nobody is a member. */
void cache_forget(void);

/* The segment, which the caller has locked, became resident. */
void cache_insert(struct member *m, struct seg *s, enum ummap_event why);
/* Something happened to a resident segment. */
void cache_touch(struct member *m, struct seg *s, enum ummap_event why);
/* A resident or inactive segment stops being so. */
void cache_remove(struct member *m, struct seg *s);
/* A segment that was removed goes to the inactive ones; and several in a row, with no other between them. */
void cache_deactivate(struct member *m, struct seg *s, enum inactive how);
void cache_deactivate_all(struct member *m, struct seg **list, unsigned n, enum inactive how);

/*
 * The segment of an account to let go: locked, and removed from where it was. `wanted` is the mapping that needs
 * room. *from: whose it is. NULL: there is none now.
 */
struct seg *cache_reclaim(struct account *account, const struct member *wanted, struct member **from);
/* A resident one, for inactive; with clean, an unchanged one only. */
struct seg *cache_victim(struct account *account, const struct member *wanted, bool clean, struct member **from);
/* As many as have so many bytes together, n at most, as they are to go one after the other; and on to the end of the
 * last one's cluster, if that is what goes next, `most` in all. Says how many. */
unsigned cache_victims(struct account *account, const struct member *wanted, size_t bytes, struct seg **list,
		       struct member **from, unsigned n, unsigned most);
/* One that was read ahead and is not asked for yet: let go before it was used. */
struct seg *cache_reclaim_ahead(struct account *account, const struct member *wanted, struct member **from);
/* The oldest dirty one inactive, locked; it stays in its list. Of m, or of any mapping of an account. */
struct seg *cache_dirty_inactive(struct member *m, uint64_t now);
struct seg *cache_dirty_inactive_any(struct account *account, uint64_t now, struct member **from);
/* Bytes of a mapping that are mapped, inactive (of any kind), and dirty. */
struct cache_bytes {
	size_t resident, inactive, dirty;
};

struct cache_bytes cache_count(const struct member *m);

#endif
