/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings whose mapped range is the store itself; map->in_place says which. */
#ifndef INPLACE_H
#define INPLACE_H

#include "paging/mapping/mapping.h"

/* Whether fd is of a store that is best used in place: a file on DAX, or a device DAX. */
bool inplace_suits(int fd);

/* These return 0, or -errno with a sentence. */

/* Maps the store into the mapped range of a mapping that has no valid segment, if the driver and the mapping allow it:
 * map->in_place says so. After a failure every access to the mapped range faults. */
int inplace_enter(struct mapping *map);
/* Makes all of it durable; then the mapping has segments, none of which is valid. */
int inplace_leave(struct mapping *map);
/* Makes `len` bytes of the mapped range, from `at` on, durable. */
int inplace_sync(struct mapping *map, size_t at, size_t len);
/* The same for all of it, if the last time was `interval` ms ago or more. */
int inplace_sync_old(struct mapping *map, uint64_t interval);

/* These return 0 or -errno. */

/* An access to addr, which the mapping allows, has faulted, by SIGBUS or by SIGSEGV. An error: it is the store's own. */
int inplace_fault(struct mapping *map, void *addr, bool bus);

/* Counts a pin of segment i, and removes it. */
int inplace_pin(struct mapping *map, size_t i);
void inplace_unpin(struct mapping *map, size_t i);

#endif
