/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a segment, and the one conductor of cache, frames, I/O and engine. */
#ifndef SEG_H
#define SEG_H

#include "paging/set.h"

/* All return 0 or -errno, unless said otherwise; i is a segment of the set, whom the caller uses. */

/* A load or store of segment i. */
int seg_fault(struct set *set, size_t i, bool write);
/* The same for threads that wait for several loads at a time. */
struct seg_load {
	struct set *set;
	size_t i;
	bool write;
	uint32_t frame;
	struct ummap_io io;      /* its owner is the segment */
};

/* 1: l->io is to be run, and then seg_end and seg_leave follow; the segment is locked until then. -errno: seg_fault has
 * to do it, and may wait for others, write, or fail for good. */
int seg_begin(struct set *set, size_t i, bool write, struct seg_load *l);
int seg_end(struct seg_load *l);
void seg_leave(struct seg_load *l);
/* Brings i in and keeps it; and lets it go again. */
int seg_pin(struct set *set, size_t i, bool write);
void seg_unpin(struct set *set, size_t i);
/* Lets the unchanged, unpinned segments of [first, last) go, and gives their memory back. */
void seg_evict(struct set *set, size_t first, size_t last);
/* Lets go of `count` segments from `first` on, where they are unchanged and nobody uses them just now; their frames are
 * the next to be taken. */
void seg_behind(struct set *set, size_t first, size_t count);
/* Writes what of [first, last) still belongs to an older target to the current one, from either end on. */
int seg_complete(struct set *set, size_t first, size_t last, bool descending);
/* The only user of a set keeps faults on other mappings away from its segments, too; and lets them again. */
void seg_hide(struct set *set);
void seg_show(struct set *set);
/* The last segment is going to end at `size`: it comes to standby at least, with the bytes of the mapping
 * that follow, from a store that has the mapping at `offset`. */
int seg_lengthen(struct set *set, size_t size, struct store *store, uint64_t offset);
/* The frames of [first, last) go home, so that the view can change there. */
int seg_retract(struct set *set, size_t first, size_t last);

#endif
