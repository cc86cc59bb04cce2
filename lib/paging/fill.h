/* SPDX-License-Identifier: BSD-3-Clause */
/* Filling the frame of an absent segment. */
#ifndef FILL_H
#define FILL_H

#include "paging/set.h"

/* Fills the frame, at home, with what belongs into segment i, which the caller has locked. 0 or -errno. */
int fill(struct set *set, size_t i, struct seg *s, uint32_t frame);
/* The request that does so (io->owner is the segment), for a frame that is writable; false: it is zeros, and
 * filled with them now. */
bool fill_request(struct set *set, size_t i, struct seg *s, uint32_t frame, struct ummap_io *io);
/* A frame at home may be written from then on. 0 or -errno. */
int fill_make_writable(struct set *set, uint32_t frame);

#endif
