/* SPDX-License-Identifier: BSD-3-Clause */
/* Twins: what dirty segments were before their first store, where others write to the same bytes. */
#ifndef TWIN_H
#define TWIN_H

#include "paging/mapping.h"

/* All of these are for the holder of the segment's lock. */

bool twin_has(const struct mapping *map, size_t i);
/* Segment i, whose contents stand in buf and cannot be stored to yet, has a twin from now on, in a frame that the caller has
 * taken, which is in the pool and may be written. */
void twin_keep(struct mapping *map, size_t i, const char *buf, uint32_t frame);
/* It has none any more, if it had one: the frame goes back. */
void twin_drop(struct mapping *map, size_t i);
/* Where its twin is, which it has. */
char *twin_addr(const struct mapping *map, size_t i);
/* Writes the bytes in which segment i, which stands in buf and which nobody can change, differs: where the last one ends, or
 * -errno. In requests of `room` at a time, at io. The same for one that may change meanwhile: its twin then has what was
 * written. */
long twin_write(struct mapping *map, size_t i, const char *buf, struct ummap_io *io, unsigned room);
long twin_write_busy(struct mapping *map, size_t i, const char *buf);

#endif
