/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of changes of the filter cow+: overlays whose blocks never go to the store by
 * themselves. The command `ummap cow` shows, commits and discards them.
 *
 * An overlay is valid for one store, as it was when the overlay began (overlay_head.store). A
 * commit to the store sets OVERLAY_APPLYING, writes all blocks, flushes the store, and removes the
 * file; an interrupted one can only be repeated. If a commit is given up, the overlay is valid for
 * the store as it is then (OVERLAY_MIXED), and must not be discarded.
 */
#ifndef DRIVERS_OVERLAY_COW_H
#define DRIVERS_OVERLAY_COW_H

#include "overlay.h"

#define COW_SUFFIX ".cow"

extern const struct overlay_policy overlay_cow;

/* Whether the changes are valid for a store: 0; -EINVAL or -ESTALE, with a message. */
int cow_fits(const struct overlay *o, const struct store_facts *now, struct ummap_geom *geom);
/* Writes all changes to the store, which has these properties and is open for writing, and removes
 * the file. Can be repeated after an interruption. Errors have a message. */
int cow_commit(struct overlay *o, const struct store_facts *now, const struct ummap_driver *driver,
	       void *store, struct ummap_geom *geom);

#endif
