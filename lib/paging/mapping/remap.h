/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes a mapping's backing store and size. */
#ifndef REMAP_H
#define REMAP_H

#include "paging/mapping/lookup.h"

struct remap {
	struct store *store;   /* the new backing store, or the old one */
	uint64_t offset;
	bool moved;            /* store or offset differ from before */
	size_t size;
	bool switch_over;      /* show the new contents, instead of migrating the old ones */
	struct lock *lock;     /* of the new range: still belongs to the caller afterwards, unless it is NULL then */
};

/* The caller is the mapping's only user. Returns 0, or -errno with a sentence; then nothing has changed, except that
 * the mapping may have shrunk already, or may be in an ordered migration (MIGRATE_ASCENDING, MIGRATE_DESCENDING). */
int remap_apply(struct mapping *map, struct remap *want);
/* Puts a mapping that was in place there again, or has it go on with segments. */
void remap_in_place(struct mapping *map);

#endif
