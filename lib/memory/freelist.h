/* SPDX-License-Identifier: BSD-3-Clause */
/* Free frames of one size: those whose huge page is free as a whole apart from all others. */
#ifndef FREELIST_H
#define FREELIST_H

#include "memory/arena.h"

#define FREELIST_BLOCK 32 /* of more frames on a huge page it is not known whether it is whole */

/* Heads of lists, FRAME_NONE at the end; what was put in last comes out first. */
struct freelist {
	_Atomic uint32_t loose, whole;
	uint32_t count;      /* frames in both */
	uint32_t least;      /* ... at the least since somebody set this */
};

#define FREELIST_EMPTY (struct freelist){ .loose = FRAME_NONE, .whole = FRAME_NONE }

/* All of these under the pool's lock. */

void freelist_push(struct freelist *l, uint32_t frame);
/* A loose one, if there is one: once these have gone, a huge page comes out from its first frame to its last. FRAME_NONE:
 * there is none of either kind. */
uint32_t freelist_pop(struct freelist *l);

/* A look without the lock. */
static inline bool freelist_is_empty(const struct freelist *l)
{
	return l->loose == FRAME_NONE && l->whole == FRAME_NONE;
}

#endif
