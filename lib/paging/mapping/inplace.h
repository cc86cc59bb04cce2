/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings in place: the mapped range has the pages of the store itself (map->in_place). */
#ifndef INPLACE_H
#define INPLACE_H

#include "paging/mapping/mapping.h"

/* Whether the file of fd should be mapped in place: a file on DAX, or a DAX device. */
bool inplace_suits(int fd);

/* These return 0, or -errno with a message. */

/* Maps the store into the mapped range and sets map->in_place, if the driver and the mapping allow
 * it. The mapping must not have valid segments. After a failure, every access to the mapped range
 * faults. */
int inplace_enter(struct mapping *map);
/* Makes all contents durable; then the mapping uses segments, none of which is valid. */
int inplace_leave(struct mapping *map);
/* Makes `len` bytes of the mapped range, from `at` on, durable. */
int inplace_sync(struct mapping *map, size_t at, size_t len);
/* Makes the whole mapping durable if the last time was `interval` ms ago or more. */
int inplace_sync_old(struct mapping *map, uint64_t interval);

/* These return 0 or -errno. */

/* Handles a permitted access to addr that has raised SIGBUS (`bus`) or SIGSEGV. Returns an error if
 * the store has raised it. */
int inplace_fault(struct mapping *map, void *addr, bool bus);

/* Count a pin of segment i, and remove it. */
int inplace_pin(struct mapping *map, size_t i);
void inplace_unpin(struct mapping *map, size_t i);

#endif
