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
/* Does the same as sync_all for a mapping that is not in place, without a message. Returns 0 or
 * -errno. Afterwards there is no older backing store. */
int sync_segments(struct mapping *map);

#endif
