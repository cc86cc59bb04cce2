/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes dirty segments to their store. */
#ifndef WRITEBACK_H
#define WRITEBACK_H

#include "paging/mapping/mapping.h"

/* All of these return 0 or -errno; what could not be written stays dirty and in memory. */

/* Writes the segments of [first, last) that have been dirty since before `before` (milliseconds). */
int writeback_range(struct mapping *map, size_t first, size_t last, uint64_t before);
/* The same from *at on, until the time `until` (sys_now) or until all is written; *at: where it stopped, after one run
 * at least. */
int writeback_some(struct mapping *map, size_t *at, size_t last, uint64_t until);
/* How many segments are written together at most. */
size_t writeback_run(const struct mapping *map);
/* Writes segment i, which is valid and locked by the caller, and its unlocked neighbours as far as `last`. */
int writeback_locked(struct mapping *map, size_t i, size_t last);
/* Writes all dirty segments of [first, last) and makes them durable. -EIO also if bytes of the mapping are lost
 * (flush.h). */
int writeback_sync(struct mapping *map, size_t first, size_t last);

/* Writes the dirty segment that has been inactive longest, of one mapping or of any of an account, with neighbours.
 * false: there is none, or it cannot be written now. */
bool writeback_inactive(struct mapping *map);
bool writeback_account(struct account *account);
/* Waits until a write that is in progress has ended. false: none is in progress. */
bool writeback_wait(void);
/* In a forked child: no write is in progress. */
void writeback_forget(void);
/* Lets workers write dirty inactive segments until none is left. The caller holds a lock or a use of the mapping. */
void writeback_behind(struct mapping *map);
/* Keeps the error of a background write for the next sync, unless one is kept already; and takes it for the sync. */
bool writeback_keep_error(struct mapping *map, int err);
int writeback_take_error(struct mapping *map);

/* The errno of the mapping's last write; 0: it succeeded. */
static inline int writeback_error(const struct mapping *map)
{
	return map->sync.write_error;
}

#endif
