/* SPDX-License-Identifier: BSD-3-Clause */
/* What a sync does: all changes of a mapping are written, in the order that they need, and made durable. */
#ifndef SYNC_H
#define SYNC_H

#include "paging/mapping.h"

/* Writes what of [first, last) is not in the current backing store yet; all of it, where that has an order. 0 or -errno. */
int sync_migrate(struct mapping *map, size_t first, size_t last);
/* Writes all changes, carried ones included, and makes them durable. 0, or -errno with a sentence. */
int sync_all(struct mapping *map);
/* Writes some of what a sync of the segments from *at to `last` would write, and goes past it. false: there is no more that
 * could be written by parts; what failed the next sync tells. */
bool sync_some(struct mapping *map, size_t *at, size_t last);
/* The sentence for changes that storage did not take, or may have lost. */
void sync_explain(const struct mapping *map, int err);
/* Closes the stores of backing stores other than the current one. */
void sync_close_older(struct mapping *map);

#endif
