/* SPDX-License-Identifier: BSD-3-Clause */
/* Twins: copies of dirty segments from before their first store. A segment has one if other
 * mappings write to the same bytes. */
#ifndef TWIN_H
#define TWIN_H

#include "paging/mapping/mapping.h"

/* The caller of each function holds the lock of the segment. */

bool twin_has(const struct mapping *map, size_t i);
/* Gives segment i, whose contents are in buf and cannot be stored to yet, a twin. The caller has
 * taken the frame, which is in the pool and writable. */
void twin_keep(struct mapping *map, size_t i, const char *buf, uint32_t frame);
/* Frees the twin of segment i, if it has one. */
void twin_drop(struct mapping *map, size_t i);
/* Gives segment i, which has a twin, another one, whose contents the store has. */
void twin_replace(struct mapping *map, size_t i, uint32_t frame);
/* Returns the address of the twin of segment i, which must exist. */
char *twin_addr(const struct mapping *map, size_t i);
/* Writes the bytes in which segment i differs from its twin. buf has its contents, which cannot
 * change; io has room for `room` requests. Returns the end of the last such byte, or -errno.
 * twin_write_busy is for a segment that may change during the write: its twin then has the bytes
 * that were written. */
long twin_write(struct mapping *map, size_t i, const char *buf, struct ummap_io *io, unsigned room);
long twin_write_busy(struct mapping *map, size_t i, const char *buf);

#endif
