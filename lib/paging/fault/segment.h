/* SPDX-License-Identifier: BSD-3-Clause */
/* Transitions of segments between their states (lib/STATES.md). */
#ifndef SEGMENT_H
#define SEGMENT_H

#include "paging/mapping/mapping.h"

/* All return 0 or -errno, unless said otherwise; i is a segment of the mapping, of which the caller has a use. */

/* A load or store of segment i. */
int seg_fault(struct mapping *map, size_t i, bool write);
/* The same for threads that have several loads in flight. */
struct seg_load {
	struct mapping *map;
	size_t i;
	bool write;
	uint32_t frame;
	struct ummap_io io;      /* its owner is the segment */
};

/* 1: the caller runs l->io, and then calls seg_load_end and seg_load_unlock; the segment is locked until then. -errno:
 * the caller has to call seg_fault, which may wait for other threads, write, or fail finally. */
int seg_load_begin(struct mapping *map, size_t i, bool write, struct seg_load *l);
int seg_load_end(struct seg_load *l);
void seg_load_unlock(struct seg_load *l);
/* Pages i in and pins it; and unpins it. */
int seg_pin(struct mapping *map, size_t i, bool write);
void seg_unpin(struct mapping *map, size_t i);
/* Evicts the clean, unpinned segments of [first, last), and frees their memory to the system. */
void seg_evict(struct mapping *map, size_t first, size_t last);
/* Makes the segments of [first, last) of a blank mapping as if they had never been touched; those that are pinned stay. */
int seg_discard(struct mapping *map, size_t first, size_t last);
/* Evicts those of `count` segments from `first` on that are clean and not locked, and, but for `all`, of which their policy
 * expects no other use; their frames are the next to be taken. Returns false if another thread holds the
 * lock of a segment that might go. */
bool seg_drop_behind(struct mapping *map, size_t first, size_t count, bool all);
/* Migrates the segments of [first, last) that are still in the older backing store to the current one, from
 * either end. */
int seg_migrate(struct mapping *map, size_t first, size_t last, bool descending);
/* For the only user of a mapping: keeps faults on other mappings from evicting its segments; and allows it again. */
void seg_hide(struct mapping *map);
void seg_show(struct mapping *map);
/* The mapping is going to end at `size`: makes its last segment inactive at least, with the bytes that it gains, from a
 * store that has the mapping at `offset`. */
int seg_lengthen(struct mapping *map, size_t size, struct store *store, uint64_t offset);
/* Moves the frames of [first, last) back to the pool, so that the mapped range can change there. */
int seg_unmap_all(struct mapping *map, size_t first, size_t last);

/* ---- Steps, for segments that the caller has locked ---- */

/* Makes the request that fills the frame, in the pool and writable, with the contents of segment i (io->owner is the
 * segment); false: the contents are zeros, and the frame was filled with them. */
bool seg_request(struct mapping *map, size_t i, struct seg *s, uint32_t frame, struct ummap_io *io);
/* Makes its poisoned place absent again. */
int seg_unpoison(struct mapping *map, size_t i, struct seg *s);
/* For mapped segments that are in no list: moves the frames of n neighbours, which are consecutive in the pool,
 * too, back there. If there are more than one, all are as they were loaded (seg_as_loaded). On failure nothing
 * has changed. */
int seg_unmap(struct mapping *map, size_t i, struct seg **list, unsigned n);
/* A clean segment that is mapped and in no list leaves the mapped range, and its contents are not needed: the caller
 * frees its frame. On failure nothing has changed. */
int seg_drop(struct mapping *map, size_t i, struct seg *s);
/* A mapped segment that is in no list becomes inactive. On failure it is mapped and in its list again. */
int seg_deactivate(struct mapping *map, size_t i, struct seg *s);
/* The same for n neighbours as above; on failure nothing has changed. */
int seg_deactivate_cluster(struct mapping *map, size_t i, struct seg **list, unsigned n);
/* Puts a mapped segment back into the policy's list, as one that was just mapped. */
void seg_put_back(struct mapping *map, struct seg *s);

#endif
