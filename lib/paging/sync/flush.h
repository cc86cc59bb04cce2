/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes durable what was written, and knows what may not be durable. */
#ifndef FLUSH_H
#define FLUSH_H

#include "paging/mapping/mapping.h"

/* Makes durable what was written. 0 or -errno: then segments that are still in memory are dirty again. */
int flush(struct mapping *map);
/* The same where no sync was requested, for drivers that distinguish the two (`push`). */
int flush_background(struct mapping *map);
/* Whether bytes of the mapping may never become durable: they were written, a flush failed, and they are not in memory
 * to be written again. This is permanent: a later success says nothing about them. */
static inline bool flush_has_lost(const struct mapping *map)
{
	return map->sync.flush.lost > 0;
}
/* How many bytes, at most, and the errno of the flush that lost them. */
static inline size_t flush_lost(const struct mapping *map)
{
	return min_size(map->sync.flush.lost, map->size);
}
static inline int flush_error(const struct mapping *map)
{
	return map->sync.flush.error;
}

/* A segment, locked by the caller, was just written; is clean, and about to be reclaimed; or is clean, and becomes
 * dirty again, because storage may not hold it. */
void flush_note(struct mapping *map, struct seg *s);
void flush_leaves(struct mapping *map, const struct seg *s);
void flush_again(struct mapping *map, size_t i, struct seg *s);
/* So many bytes were written, did not become durable, and cannot be written again. */
void flush_lose(struct mapping *map, uint64_t bytes, int err);
/* For the only user of a mapping that shows another store now: losses of the old one no longer matter, unless it is the
 * same store (`same`) at another offset, whose contents the mapping still shows. */
void flush_forget(struct mapping *map, bool same);

#endif
