/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a sequential run uses the frames again that it has left behind, or takes more memory. */
#ifndef RECYCLE_H
#define RECYCLE_H

#include "paging/mapping/mapping.h"

/* Whether runs of the mapping recycle now. */
bool recycle_now(const struct mapping *map);
/* An absent segment, which the caller has locked, is going to be loaded: notes whether it was
 * dropped behind a run not long ago. */
void recycle_note_return(struct mapping *map, struct seg *s);
static inline void recycle_look(struct mapping *map, struct seg *s)
{
	if (seg_has(s, SEG_LEFT_BEHIND))
		recycle_note_return(map, s);
}
/* Notes the time in a locked segment that has just become absent behind a run. */
void recycle_leave(struct mapping *map, struct seg *s);

#endif
