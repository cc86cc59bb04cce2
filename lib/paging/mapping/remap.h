/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes the backing store and the size of a mapping. */
#ifndef REMAP_H
#define REMAP_H

#include "paging/mapping/lookup.h"

struct remap {
	struct store *store;   /* the new backing store, or the old one */
	uint64_t offset;       /* offset in the store where the mapping begins */
	bool moved;            /* whether the store or the offset changes */
	size_t size;           /* new size in bytes */
	bool switch_over;      /* whether the contents become those of the new store; false: the old
				  contents migrate */
	struct lock *lock;     /* lock of the new range; still belongs to the caller afterwards,
				  unless it is NULL */
};

/* Applies a change. The caller must be the only user of the mapping. Returns 0, or -errno with a
 * message; then nothing has changed, except that the mapping may have shrunk, or may be in an
 * ordered migration (MIGRATE_ASCENDING, MIGRATE_DESCENDING). */
int remap_apply(struct mapping *map, struct remap *want);
/* Puts a mapping that was in place into place again. If this fails, the mapping uses segments. */
void remap_in_place(struct mapping *map);

#endif
