/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for segments that are paged in, and eviction of others to get them. */
#ifndef EVICT_H
#define EVICT_H

#include "paging/mapping/mapping.h"

/* The process's budget, or what a mapping needs at least. */
size_t evict_limit(const struct mapping *map);

/* For engine_batch_begin, by whoever moves its segments. */
size_t evict_twice(const struct mapping *map);

/*
 * A frame for the mapping: within the budgets as long as a segment can be evicted, beyond them rather than block or
 * lose data. FRAME_NONE: for readahead, there is neither a free frame nor a clean inactive segment; otherwise, no
 * memory at all.
 */
uint32_t evict_take_frame(struct mapping *map, bool ahead);
void evict_return_frame(struct mapping *map, uint32_t frame);
/* Frees frames, in up to so many steps, while the process holds more than limit bytes, or the
 * mapping's account more than it may; users of the mapping do not block it. false: no frame can be
 * freed at the moment. */
bool evict_shrink(struct mapping *map, size_t limit, unsigned frames);

/* A locked segment that is in no list gives up its frame. */
uint32_t evict_let_go(struct mapping *map, struct seg *s);
/* Deactivates up to n segments, if few are inactive, without I/O; the caller may hold locks of other segments. */
void evict_resupply(struct mapping *map, unsigned n);
/* The kernel has no VMA left to move a frame with: discards a clean segment in place. */
bool evict_shed(struct mapping *wanted);
/* A fault has used what was read ahead for the mapping: the following segments will need clean inactive frames. */
void evict_expect(struct mapping *map);

#endif
