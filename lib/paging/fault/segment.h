/* SPDX-License-Identifier: BSD-3-Clause */
/* Transitions of segments between their states (lib/STATES.md). */
#ifndef SEGMENT_H
#define SEGMENT_H

#include "paging/mapping/mapping.h"

/* The functions return 0 or -errno, unless stated otherwise. i is the number of a segment. The
 * caller must have a use of the mapping. */

/* Serves a load or store of segment i. */
int seg_fault(struct mapping *map, size_t i, bool write);

/* A load of a thread that has several loads in flight. */
struct seg_load {
	struct mapping *map;
	size_t i;                /* number of the segment */
	bool write;              /* whether the access is a store */
	uint32_t frame;          /* frame of the segment */
	struct ummap_io io;      /* request; its owner is the segment */
};

/* Begins to serve a load or store of segment i. Returns 1 if the caller must run l->io and then
 * call seg_load_end and unlock the segment, which is l->io.owner. Returns 0 if the access was
 * served; or -errno if the caller must call seg_fault, which may wait for other threads, write, or
 * fail finally. */
int seg_load_begin(struct mapping *map, size_t i, bool write, struct seg_load *l);
int seg_load_end(struct seg_load *l);
/* Pages segment i in and pins it. */
int seg_pin(struct mapping *map, size_t i, bool write);
void seg_unpin(struct mapping *map, size_t i);
/* Evicts the clean, unpinned segments of [first, last), and frees their memory to the system. */
void seg_evict(struct mapping *map, size_t first, size_t last);
/* Makes the segments of [first, last) of a blank mapping as if they had never been accessed. Pinned
 * segments stay, and the call returns -EBUSY. */
int seg_discard(struct mapping *map, size_t first, size_t last);
/* Migrates the segments of [first, last) that are in the older backing store to the current one, in
 * ascending or descending order. */
int seg_migrate(struct mapping *map, size_t first, size_t last, bool descending);
/* Hides the segments of a mapping from faults on other mappings, which then do not evict them. The
 * caller must be the only user of the mapping. */
void seg_hide(struct mapping *map);
void seg_show(struct mapping *map);
/* Adds to the last segment the bytes that it gains if the mapping ends at `size`, from a store that
 * has the mapping at `offset`. The segment is at most inactive afterwards. */
int seg_lengthen(struct mapping *map, size_t size, struct store *store, uint64_t offset);
/* Makes the resident segments of [first, last) inactive, so that the mapped range can change. */
int seg_unmap_all(struct mapping *map, size_t first, size_t last);

/* ---- Steps, for segments that the caller has locked ---- */

/* Makes the request that reads segment i into `buf`, which has zeros if it is blank (io->owner is
 * the segment). Returns false if the segment is zeros, which the buffer has then. */
bool seg_request(struct mapping *map, size_t i, struct seg *s, char *buf, bool blank,
		 struct ummap_io *io);
/* Reads from a store, and makes up for n frames that were taken while the read is in flight. */
int seg_read(struct mapping *map, struct store *store, struct ummap_io *io, size_t n);
/* Removes the poison of a slot. */
int seg_unpoison(struct mapping *map, size_t i, struct seg *s);
/* Moves the frames of n neighbors, which are resident, in no list and consecutive in the pool, back
 * to the pool. If n is more than 1, all must be as they were loaded (seg_as_loaded). On failure
 * nothing has changed. */
int seg_unmap(struct mapping *map, size_t i, struct seg **list, unsigned n);
/* Empties the slot of a clean segment that is resident and in no list. The contents of its frame
 * are lost, and the caller frees the frame. On failure nothing has changed. */
int seg_drop(struct mapping *map, size_t i, struct seg *s);
/* Makes a resident segment that is in no list inactive. On failure it is resident, and in its list
 * again. */
int seg_deactivate(struct mapping *map, size_t i, struct seg *s);
/* Makes n neighbors inactive, for which the rules of seg_unmap hold. On failure nothing has
 * changed. */
int seg_deactivate_cluster(struct mapping *map, size_t i, struct seg **list, unsigned n);
/* Moves the contents of a valid segment without pins, of a mapping that is not shared and whose
 * frames move as a whole, to a frame that the caller has taken. Returns the old frame; or
 * FRAME_NONE, after which nothing has changed. */
uint32_t seg_move(struct mapping *map, size_t i, struct seg *s, uint32_t frame);
/* Puts a resident segment back into the list of its policy, as one that was just mapped. */
void seg_put_back(struct mapping *map, struct seg *s);

#endif
