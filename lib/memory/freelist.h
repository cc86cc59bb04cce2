/* SPDX-License-Identifier: BSD-3-Clause */
/* The free frames of one class, in two lists: frames whose huge page is free as a whole, and all
 * others. */
#ifndef FREELIST_H
#define FREELIST_H

#include "memory/arena.h"

struct freelist {
	_Atomic uint32_t loose, whole; /* heads of the lists, FRAME_NONE at the end; last in, first
					  out */
	uint32_t count;      /* frames in both lists */
	uint32_t least;      /* least value of count since this was set */
};

#define FREELIST_EMPTY (struct freelist){ .loose = FRAME_NONE, .whole = FRAME_NONE }

/* These need the pool's lock. */

void freelist_push(struct freelist *l, uint32_t frame);
/* Returns a loose frame, if there is one; otherwise, one after the other, the frames of a whole
 * huge page from the first to the last. FRAME_NONE: both lists are empty. */
uint32_t freelist_pop(struct freelist *l);

/* May be called without the lock. */
static inline bool freelist_is_empty(const struct freelist *l)
{
	return l->loose == FRAME_NONE && l->whole == FRAME_NONE;
}

#endif
