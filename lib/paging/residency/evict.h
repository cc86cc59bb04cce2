/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds frames for segments that are paged in, and evicts segments for that. */
#ifndef EVICT_H
#define EVICT_H

#include "paging/mapping/mapping.h"

/*
 * Returns a frame for the mapping: within the budgets as long as a segment can be evicted, and
 * beyond them rather than block or lose data. Returns FRAME_NONE for readahead if there is neither
 * a free frame nor a clean inactive segment, and for a fault if the system has no memory.
 */
uint32_t evict_take_frame(struct mapping *map, bool ahead);
/* Returns a frame for a neighbor of a faulting segment. Evicts segments for it as for the fault,
 * but returns FRAME_NONE rather than wait, write or exceed a budget. */
uint32_t evict_take_spare(struct mapping *map);
void evict_return_frame(struct mapping *map, uint32_t frame);
/* Frees frames, in up to `frames` steps, while the frames of the process or of the mapping's
 * account exceed their limit; least: bytes that a mapping needs. Users of the mapping do not block
 * this. Returns false if no frame can be freed at the moment. */
bool evict_shrink(struct mapping *map, size_t least, unsigned frames);

/* Makes a segment absent that is locked and in no list. Returns its frame, which is not charged any
 * more. */
uint32_t evict_release_frame(struct mapping *map, struct seg *s);
/* Drops a whole block (huge_blocks.h) that is resident and clean. Returns whether it could be
 * dropped now. */
bool evict_drop_block(struct mapping *map, size_t first);
/* Deactivates up to n segments if few are inactive, without I/O. The caller may hold locks of other
 * segments. */
void evict_replenish(struct mapping *map, unsigned n);
/* Frees VMAs when the process has none left to move a frame with. Returns false if none is free. */
bool evict_unmap_for_vma_limit(struct mapping *wanted);
/* A fault has used a segment that was read ahead. Readahead of the next ones will need frames of
 * clean inactive segments, so a worker replenishes them. */
void evict_prepare_readahead(struct mapping *map);

#endif
