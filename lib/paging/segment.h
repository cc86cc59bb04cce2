/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a segment: the only room in which it goes from one to another. */
#ifndef SEGMENT_H
#define SEGMENT_H

#include "paging/mapping.h"

/* All return 0 or -errno, unless said otherwise; i is a segment of the mapping, whom the caller uses. */

/* A load or store of segment i. */
int seg_fault(struct mapping *map, size_t i, bool write);
/* The same for threads that wait for several loads at a time. */
struct seg_load {
	struct mapping *map;
	size_t i;
	bool write;
	uint32_t frame;
	struct ummap_io io;      /* its owner is the segment */
};

/* 1: l->io is to be run, and then seg_load_end and seg_load_unlock follow; the segment is locked until then. -errno: seg_fault has
 * to do it, and may wait for others, write, or fail for good. */
int seg_load_begin(struct mapping *map, size_t i, bool write, struct seg_load *l);
int seg_load_end(struct seg_load *l);
void seg_load_unlock(struct seg_load *l);
/* Brings i in and keeps it; and lets it go again. */
int seg_pin(struct mapping *map, size_t i, bool write);
void seg_unpin(struct mapping *map, size_t i);
/* Lets the unchanged, unpinned segments of [first, last) go, and gives their memory back. */
void seg_evict(struct mapping *map, size_t first, size_t last);
/* Lets go of `count` segments from `first` on, where they are unchanged and nobody uses them just now; their frames are
 * the next to be taken. */
void seg_drop_behind(struct mapping *map, size_t first, size_t count);
/* Writes what of [first, last) still belongs to an older backing store to the current one, from either end on. */
int seg_migrate(struct mapping *map, size_t first, size_t last, bool descending);
/* The only user of a mapping keeps faults on other mappings away from its segments, too; and lets them again. */
void seg_hide(struct mapping *map);
void seg_show(struct mapping *map);
/* The last segment is going to end at `size`: it comes to the inactive ones at least, with the bytes of the mapping
 * that follow, from a store that has the mapping at `offset`. */
int seg_lengthen(struct mapping *map, size_t size, struct store *store, uint64_t offset);
/* The frames of [first, last) go back to the pool, so that the mapped range can change there. */
int seg_unmap_all(struct mapping *map, size_t first, size_t last);

/* ---- Steps, for segments that the caller has locked ---- */

/* The request that fills the frame, in the pool and writable, with what belongs into segment i (io->owner is the segment);
 * false: that is zeros, and it is filled with them now. */
bool seg_request(struct mapping *map, size_t i, struct seg *s, uint32_t frame, struct ummap_io *io);
/* Its place was poisoned, and is absent again. */
int seg_unpoison(struct mapping *map, size_t i, struct seg *s);
/* Resident segments that are in no list. The frames of n neighbours, which follow one another in the pool, too, go back there;
 * more than one are all as they were loaded (seg_as_loaded). On failure nothing has changed. */
int seg_unmap(struct mapping *map, size_t i, struct seg **list, unsigned n);
/* A resident segment that is in no list becomes inactive. On failure it is resident again. */
int seg_deactivate(struct mapping *map, size_t i, struct seg *s);
/* The same for n neighbours as above; on failure nothing has changed. */
int seg_deactivate_cluster(struct mapping *map, size_t i, struct seg **list, unsigned n);
/* It is resident again, in the policy's list, as one that just came. */
void seg_put_back(struct mapping *map, struct seg *s);

#endif
