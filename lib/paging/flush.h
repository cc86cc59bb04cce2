/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes durable what was written, and knows what is not sure to be. */
#ifndef FLUSH_H
#define FLUSH_H

#include "paging/mapping.h"

/* Makes durable what was written. 0 or -errno: then what is still in memory counts as dirty again. */
int flush(struct mapping *map);
/* The same where nobody asks for a sync, which makes one of all that was written for drivers that tell the two apart. */
int flush_background(struct mapping *map);
/* Whether bytes of the mapping may never become durable: they were written, a flush failed, and nobody has them to write
 * them again. It does not pass: no later success says anything about them. */
static inline bool flush_has_lost(const struct mapping *map)
{
	return map->flush.lost > 0;
}

/* A segment, locked by the caller, was just written; is unchanged, and about to leave memory; or is unchanged, and counts
 * as changed again, because storage may not hold it. */
void flush_note(struct mapping *map, struct seg *s);
void flush_leaves(struct mapping *map, const struct seg *s);
void flush_again(struct mapping *map, size_t i, struct seg *s);
/* So many bytes were to become durable, and cannot be written again. */
void flush_lose(struct mapping *map, uint64_t bytes, int err);
/* For the only user of a mapping that shows another store now: nothing of the old one matters; but where it is the same one, at
 * another place, what was written to it shows. */
void flush_forget(struct mapping *map, bool same);

#endif
