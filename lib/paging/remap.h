/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes a mapping's backing store and size. */
#ifndef REMAP_H
#define REMAP_H

#include "paging/lookup.h"

struct remap {
	struct store *store;   /* the new backing store, or the old one */
	uint64_t offset;
	bool moved;            /* store or offset differ from before */
	size_t size;
	bool switch_over;      /* show the new contents, instead of carrying the old ones */
	struct lock *lock;     /* of the new range: the caller's, unless it is NULL afterwards */
};

/* The caller is the mapping's only user. Returns 0, or -errno with a sentence; then all is as it was, but for a size that
 * has shrunk already, and for contents that are in order to be moved (MIGRATE_ASCENDING, MIGRATE_DESCENDING). */
int remap_apply(struct mapping *map, struct remap *want);
/* Bytes of the mapping that its current backing store holds. */
uint64_t remap_stored(struct store *store, uint64_t offset, size_t size);

#endif
