/* SPDX-License-Identifier: BSD-3-Clause */
/* Syncs: all changes of a mapping are written, in the required order, and made durable. */
#ifndef SYNC_H
#define SYNC_H

#include "paging/mapping/mapping.h"

/* Migrates the segments of [first, last) that are not in the current backing store yet; all
 * segments if the migration has an order. Returns 0 or -errno. */
int sync_migrate(struct mapping *map, size_t first, size_t last);
/* Writes all changes, completes a migration, and makes all durable. Returns 0, or -errno with a
 * message. */
int sync_all(struct mapping *map);
/* Writes all changes and completes a migration, without making the changes durable. Returns 0,
 * or -errno with a message. */
int sync_write(struct mapping *map);
/* Writes for a short time a part of what a sync of the segments from *at to `last` would write,
 * and advances *at. Returns false if nothing is left that can be written in parts. The next sync
 * reports errors. */
bool sync_some(struct mapping *map, size_t *at, size_t last);
/* Sets the error message for changes that storage did not take, or may have lost. */
void sync_explain(const struct mapping *map, int err);
/* Closes the older backing store. */
void sync_close_older(struct mapping *map);
/* Writes all dirty segments of [first, last) and makes them durable. Returns 0 or -errno; -EIO also
 * if bytes of the mapping are lost (flush_has_lost). */
int sync_changes(struct mapping *map, size_t first, size_t last);
/* Does the same as sync_all for a mapping that is not in place, without a message. Returns 0 or
 * -errno. Afterwards there is no older backing store. */
int sync_segments(struct mapping *map);

/* ---- Flush: makes written bytes durable, and knows which bytes may not be durable ---- */

/* Makes all written bytes durable. 0 or -errno: then segments that are still in memory are dirty
 * again. */
int flush_written(struct mapping *map);
/* A flush that no sync requested, for drivers that distinguish the two (`push`). If the driver only
 * pushes, all written bytes stay due. */
int flush_background(struct mapping *map);
/* Whether bytes of the mapping may never become durable: they were written, a flush failed, and
 * they are not in memory to be written again. This is permanent, because the success of a later
 * flush does not cover these bytes. */
static inline bool flush_has_lost(const struct mapping *map)
{
	return map->sync.flush.lost > 0;
}
/* Returns the number of such bytes, at most, and the errno of the flush that lost them. */
static inline size_t flush_lost(const struct mapping *map)
{
	return min_size(map->sync.flush.lost, map->size);
}
static inline int flush_error(const struct mapping *map)
{
	return map->sync.flush.error;
}

/* For a segment that the caller has locked. flush_note: it was just written. flush_leaves: it is
 * clean and about to be reclaimed. flush_again: it is clean, and becomes dirty again, because
 * storage may not have its contents. */
static inline void flush_note(struct mapping *map, struct seg *s)
{
	seg_set_time(s, map->sync.flush.generation);
}
/* Whether bytes of the segment that were written at this time, by the clock of flush_note, may not
 * be durable. */
bool flush_is_open(const struct mapping *map, const struct seg *s, uint64_t time);
void flush_leaves(struct mapping *map, const struct seg *s);
void flush_again(struct mapping *map, size_t i, struct seg *s);
/* For the only user of a mapping that has been switched to another store: losses of the old store
 * do not matter any more. same: it is the same store at another offset, whose contents the mapping
 * still shows, so the bytes that were written are still due. */
void flush_forget(struct mapping *map, bool same);

#endif
