/* SPDX-License-Identifier: BSD-3-Clause */
/* Drops segments behind a sequential run, whose frames the run then uses again. */
#ifndef RECYCLE_H
#define RECYCLE_H

#include "paging/mapping/mapping.h"

/* Whether runs of the mapping recycle frames now, and whether a run at segment i has left more
 * segments behind than stay there. */
bool recycle_is_wanted(const struct mapping *map);
bool recycle_is_far(const struct mapping *map, const struct stream *r, size_t i);
/* Drops the clusters that lie behind segment i, as far as they are clean and not locked; unless
 * `all`, only the segments of which their policy expects no other use. Their frames are the next to
 * be taken. */
void recycle_drop_behind(struct mapping *map, size_t i, size_t cluster, bool all);
/* Drops the block of 2 MiB from segment `first` on, which lies behind a sequential run, if it is
 * resident, clean and not locked (huge_blocks.h). */
void recycle_drop_block(struct mapping *map, size_t first);
/* An absent segment, which the caller has locked, is going to be loaded: notes whether it was
 * dropped behind a run not long ago. */
void recycle_note_return(struct mapping *map, struct seg *s);
static inline void recycle_note_load(struct mapping *map, struct seg *s)
{
	if (seg_has(s, SEG_LEFT_BEHIND))
		recycle_note_return(map, s);
}

#endif
