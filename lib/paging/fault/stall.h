/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores to a mapping whose writes fail: how much memory they may take, and what happens then. */
#ifndef STALL_H
#define STALL_H

#include "paging/mapping/mapping.h"
#include "paging/sync/writeback.h"

#include <errno.h>

/* Whether the error says that storage is full, or that the user's quota is used up. */
static inline bool stall_lacks_space(int error)
{
	return error == ENOSPC || error == EDQUOT;
}

/* Records that a write of the mapping has failed (err: -errno) without a caller that gets the
 * error. The background thread reports it. */
void stall_note_failure(struct mapping *map, int err);

/* The slow part of stall_must_wait. */
bool stall_is_full(const struct mapping *map);

/* Whether a store to segment i, which may be unlocked, must not make it dirty now. On the fault
 * path. */
static inline bool stall_must_wait(const struct mapping *map, size_t i)
{
	return writeback_error(map) && !seg_has(map_seg(map, i), SEG_DIRTY) && stall_is_full(map);
}

/* stall_note_wait records that a thread is about to wait. The thread must have a use of the
 * mapping. After map_leave, stall_sleep waits for a short time; then the caller must check
 * again. */
void stall_note_wait(struct mapping *map);
void stall_sleep(void);

/* For the background thread. stall_release reports waiting threads, tries to write, and wakes
 * the threads that need not wait any longer; it returns whether others still wait. stall_check,
 * which is called once a second, reports, and makes every waiting thread check again. */
bool stall_release(void);
void stall_check(struct mapping *map);

/* At exit: one message for each mapping whose changes are lost because storage did not take
 * them. */
void stall_report_lost(void);

#endif
