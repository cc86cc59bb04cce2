/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for segments that are paged in, and eviction of others to get them. */
#ifndef EVICT_H
#define EVICT_H

#include "paging/mapping/mapping.h"

/*
 * A frame for the mapping: within the budgets as long as a segment can be evicted, beyond them rather than block or
 * lose data. FRAME_NONE: for readahead, there is neither a free frame nor a clean inactive segment; otherwise, no
 * memory at all.
 */
uint32_t evict_take_frame(struct mapping *map, bool ahead);
void evict_return_frame(struct mapping *map, uint32_t frame);
/* Frees frames, in up to `frames` steps, while the frames of the process or of the mapping's
 * account exceed their limit; least: bytes that a mapping needs. Users of the mapping do not block
 * this. Returns false if no frame can be freed at the moment. */
bool evict_shrink(struct mapping *map, size_t least, unsigned frames);

/* A locked segment that is in no list gives up its frame. */
uint32_t evict_let_go(struct mapping *map, struct seg *s);
/* Deactivates up to n segments, if few are inactive, without I/O; the caller may hold locks of other segments. */
void evict_resupply(struct mapping *map, unsigned n);
/* The kernel has no VMA left to move a frame with: discards a clean segment in place. */
bool evict_shed(struct mapping *wanted);
/* A fault has used what was read ahead for the mapping: the following segments will need clean inactive frames. */
void evict_expect(struct mapping *map);

#endif
