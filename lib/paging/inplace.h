/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings whose mapped range is the store itself; map->in_place says which. */
#ifndef INPLACE_H
#define INPLACE_H

#include "paging/mapping.h"

/* Whether fd is of a store that is best used in place: a file on DAX, or a device DAX. */
bool inplace_suits(int fd);

/* These return 0, or -errno with a sentence. */

/* Puts the store into the mapped range of a mapping of which no segment is valid, if the driver and the mapping allow it:
 * map->in_place tells. After a failure the mapped range is without access. */
int inplace_enter(struct mapping *map);
/* Makes all durable; then the mapping is one of segments, none of which is valid. */
int inplace_leave(struct mapping *map);
/* Makes `len` bytes of the mapped range, from `at` on, durable. */
int inplace_sync(struct mapping *map, size_t at, size_t len);
/* The same for all of it, if the last time is `interval` ms ago. */
int inplace_sync_old(struct mapping *map, uint64_t interval);

/* And these 0 or -errno. */

/* The processor refused an access to addr that the mapping allows. */
int inplace_fault(struct mapping *map, void *addr);

/* Counts a pin of segment i, and takes it off. */
int inplace_pin(struct mapping *map, size_t i);
void inplace_unpin(struct mapping *map, size_t i);

#endif
