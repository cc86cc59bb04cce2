/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The neighbors that a fault brings in, in mappings with UMMAP_SEG_AUTO: their number follows from
 * the accesses (transfer_size.h), unless advice decides it.
 */
#ifndef NEIGHBORS_H
#define NEIGHBORS_H

#include "paging/mapping/mapping.h"

/* Whether the faults of a mapping bring in neighbors. */
static inline bool neighbors_come(const struct mapping *map)
{
	return map->residency.transfer.stamps;
}

/* Makes the faults of a new mapping bring in neighbors. Returns 0 or -errno. The engine of the
 * mapping has copied_frames. neighbors_end frees the memory for that, if there is any. */
int neighbors_begin(struct mapping *map);
void neighbors_end(struct mapping *map);
/* The mapping, whose only user is the caller, has grown. If it is much longer than before, its
 * transfer size is found anew. */
void neighbors_grow(struct mapping *map);
/* The number of bytes that a fault brings in at most. */
size_t neighbors_transfer_bytes(const struct mapping *map);

/*
 * Loads an absent segment, which the caller has locked and given a frame, together with absent
 * neighbors. Returns true if the segment is resident. It is read-only, also for a store (`write`),
 * which the caller counts. Otherwise nothing has changed, and the caller must load the segment
 * alone.
 */
bool neighbors_load(struct mapping *map, size_t i, struct seg *s, uint32_t frame, bool write);
/* Loads the first segments of a sorted list of n segments by one request, as far as they are
 * adjacent, and makes them resident. Returns their number; 0: they are too few, or cannot be loaded
 * here, and the caller must load them. */
size_t neighbors_load_listed(struct mapping *map, const size_t *list, size_t n);
/* Segment i, which the caller has locked, was loaded as a neighbor and is resident now: makes
 * neighbors resident that came with it. */
void neighbors_return(struct mapping *map, size_t i);
/* Notes a store to segment i, which the caller has locked. */
void neighbors_note_store(struct mapping *map, size_t i);

#endif
