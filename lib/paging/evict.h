/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for segments that come in, and the way out for those that go. */
#ifndef EVICT_H
#define EVICT_H

#include "paging/mapping.h"

/* The process's budget, or what a mapping needs at least. */
size_t evict_limit(const struct mapping *map);

/*
 * A frame for the mapping: within the budgets as long as something can be let go, over them rather than block or
 * lose data. FRAME_NONE: for read-ahead, there is neither a free frame nor a clean one inactive; else, no
 * memory at all.
 */
uint32_t evict_take_frame(struct mapping *map, bool ahead);
void evict_return_frame(struct mapping *map, uint32_t frame);
/* Lets go of up to so many frames while the process holds more than limit bytes; whoever uses the mapping is not in the
 * way. false: there is none to let go just now. */
bool evict_shrink(struct mapping *map, size_t limit, unsigned frames);

/* A locked segment that is in no list gives up its frame. */
uint32_t evict_let_go(struct mapping *map, struct seg *s);
/* Sends up to n segments to the inactive ones, if there are few, without I/O; its caller may hold the locks of others. */
void evict_resupply(struct mapping *map, unsigned n);
/* The system has no mapping left to move a frame with: drops an unchanged segment where it stands. */
bool evict_shed(struct mapping *wanted);
/* A fault has used what was read ahead for the mapping: some of what follows will need a clean frame inactive. */
void evict_expect(struct mapping *map);

#endif
