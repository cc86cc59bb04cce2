/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a run in order takes the frames that it left behind, or more memory. */
#ifndef RECYCLE_H
#define RECYCLE_H

#include "paging/mapping/mapping.h"

/* Whether runs of the mapping recycle now. */
bool recycle_now(const struct mapping *map);
/* An absent segment, which the caller has locked, is going to be loaded: what was left behind not long ago is wanted again. */
void recycle_look(struct mapping *map, struct seg *s);
/* A locked segment has just become absent behind a run. */
void recycle_leave(struct mapping *map, struct seg *s);

#endif
