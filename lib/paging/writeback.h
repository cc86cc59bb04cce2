/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes dirty segments to their store. */
#ifndef WRITEBACK_H
#define WRITEBACK_H

#include "paging/mapping.h"

/* All of these return 0 or -errno; what could not be written stays dirty and in memory. */

/* Writes the dirty segments of [first, last) that have been so since before `before` (milliseconds). */
int writeback_range(struct mapping *map, size_t first, size_t last, uint64_t before);
/* The same from *at on, until it is so late (sys_now) or all is written; *at: how far it came, by one run at the least. */
int writeback_some(struct mapping *map, size_t *at, size_t last, uint64_t until);
/* So many segments leave together at the most. */
size_t writeback_run(const struct mapping *map);
/* Writes segment i, which is valid and locked by the caller, and its unlocked neighbours as far as `last`. */
int writeback_locked(struct mapping *map, size_t i, size_t last);
/* Writes all dirty segments of [first, last) and makes them durable. -EIO as well where something of the mapping is lost
 * (flush.h). */
int writeback_sync(struct mapping *map, size_t first, size_t last);

/* Writes the dirty segment that is inactive longest, of one mapping or of any of an account, with neighbours.
 * false: there is none, or it cannot be written now. */
bool writeback_inactive(struct mapping *map);
bool writeback_account(struct account *account);
/* Waits until a write that is under way has ended. false: none is. */
bool writeback_wait(void);
/* In a forked child: none is under way. */
void writeback_forget(void);
/* Has workers do so as long as there are any. The caller holds a lock or a use of the mapping. */
void writeback_behind(struct mapping *map);
/* An error of a write that nobody waits for is kept for the next sync, unless there is one already; which takes it. */
bool writeback_keep_error(struct mapping *map, int err);
int writeback_take_error(struct mapping *map);

#endif
