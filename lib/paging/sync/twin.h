/* SPDX-License-Identifier: BSD-3-Clause */
/* Twins: copies of dirty segments from before their first store, where other mappings write to the same bytes. */
#ifndef TWIN_H
#define TWIN_H

#include "paging/mapping/mapping.h"

/* All of these are for the holder of the segment's lock. */

bool twin_has(const struct mapping *map, size_t i);
/* Gives segment i, whose contents are in buf and cannot be stored to yet, a twin, in a frame that the caller has taken,
 * which is in the pool and writable. */
void twin_keep(struct mapping *map, size_t i, const char *buf, uint32_t frame);
/* Frees its twin, if it has one. */
void twin_drop(struct mapping *map, size_t i);
/* The address of its twin, which exists. */
char *twin_addr(const struct mapping *map, size_t i);
/* Writes the bytes in which segment i, whose contents are in buf and cannot change, differs from its twin; `room`
 * requests at a time, at io. Returns where the last such byte ends, or -errno. twin_write_busy: for a segment that may
 * change meanwhile; its twin then has what was written. */
long twin_write(struct mapping *map, size_t i, const char *buf, struct ummap_io *io, unsigned room);
long twin_write_busy(struct mapping *map, size_t i, const char *buf);

#endif
