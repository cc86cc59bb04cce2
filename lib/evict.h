/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for segments that come in, and the way out for those that go. */
#ifndef EVICT_H
#define EVICT_H

#include "set.h"

/* An instruction may touch this many segments at once; with fewer frames it would never get on. */
#define EVICT_FRAMES_MIN 4

/* The process's budget, or what a mapping needs at least. */
size_t evict_limit(const struct set *set);

/*
 * A frame for the set: within the budget as long as something can be let go, over it rather than block or
 * lose data. FRAME_NONE: for read-ahead, no room without touching what is in use; else, no memory at all.
 */
uint32_t evict_take_frame(struct set *set, bool ahead);
void evict_return_frame(struct set *set, uint32_t frame);

/* A locked segment that is in no list gives up its frame. */
uint32_t evict_let_go(struct set *set, struct seg *s);
/* Sends a segment to standby, if there are few; its caller may hold the lock of another one. */
void evict_resupply(struct set *set);
/* The frame of a resident, locked segment that is in no list goes home. Returns 0 or -errno. */
int evict_home(struct set *set, size_t i, struct seg *s);
/* Resident, locked and in no list -> standby. Returns 0, or -errno and has put it back. */
int evict_to_standby(struct set *set, size_t i, struct seg *s);
/* The system has no mapping left to move a frame with: drops an unchanged segment where it stands. */
bool evict_shed(struct set *wanted);
/* In a forked child: no job runs. */
void evict_forget(void);

#endif
