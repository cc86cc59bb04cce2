/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is resident, who is on standby, who goes next. */
#ifndef CACHE_H
#define CACHE_H

#include "list.h"
#include "segment.h"

/* The cache's part of a mapping. All fields are the cache's once it has joined. */
struct member {
	const struct ummap_policy *policy;
	void *p;                      /* the policy's object */
	size_t len;                   /* of a frame */
	struct ummap_node clean, dirty, ahead; /* standby lists, oldest first */
	size_t resident, changed;     /* segments in the view, and how many of them are changed */
	size_t standby, unwritten;    /* segments on the clean and on the dirty list */
	size_t prefetched;            /* segments on the ahead list */
	uint64_t mean;                /* about when its resident segments came, in faults of the process */
	bool hidden;                  /* gives nothing just now */
	_Atomic uint64_t retry;       /* no write of a dirty one before this time: the last one failed */
	struct member *next, *prev;   /* the ring of members */
};

/* Where a segment stands when it is on standby. */
enum standby {
	STANDBY_CLEAN,  /* at the end: let go last */
	STANDBY_FIRST,  /* clean, let go first */
	STANDBY_DIRTY,
	STANDBY_AHEAD
};

void cache_join(struct member *m, const struct ummap_policy *policy, void *p, size_t len);
void cache_leave(struct member *m);
/* A hidden member's segments are not picked, for any purpose. */
void cache_hide(struct member *m, bool hidden);
/* In a forked child: nobody is a member. */
void cache_forget(void);

/* The segment, which the caller has locked, became resident. */
void cache_insert(struct member *m, struct seg *s, enum ummap_event why);
/* Something happened to a resident segment. */
void cache_touch(struct member *m, struct seg *s, enum ummap_event why);
/* A resident or standby segment stops being so. */
void cache_remove(struct member *m, struct seg *s);
/* A segment that was removed goes to standby. */
void cache_stand(struct member *m, struct seg *s, enum standby how);

/*
 * The segment to let go: locked, and removed from where it was. `wanted` is the mapping that needs room,
 * `only`: from nobody else. *from: whose it is. NULL: there is none now.
 */
struct seg *cache_reclaim(struct member *wanted, bool only, struct member **from);
/* A resident one, for standby; with clean, an unchanged one only. */
struct seg *cache_victim(struct member *wanted, bool only, bool clean, struct member **from);
/* A segment of m that was read ahead and is not asked for yet: let go before it was used. */
struct seg *cache_reclaim_ahead(struct member **from);
/* The oldest dirty one on standby; it stays in its list. Of m, or of any mapping if m is NULL. */
struct seg *cache_unwritten(struct member *m, uint64_t now, struct member **from);
/* Bytes of a mapping that are in the view, on standby (of any kind), and changed. */
struct cache_bytes {
	size_t resident, standby, dirty;
};

struct cache_bytes cache_count(const struct member *m);
/* Bytes on the standby lists of all: clean ones, and ones that wait to be written. */
size_t cache_clean_bytes(void);
size_t cache_unwritten_bytes(void);
size_t cache_ahead_bytes(void);

#endif
