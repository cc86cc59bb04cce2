/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings of the process, and the search for the mapping that contains an address. */
#ifndef LOOKUP_H
#define LOOKUP_H

#include "paging/mapping/mapping.h"

/* Allocates a zeroed structure, or returns NULL if there is no memory. Its memory is never returned
 * to the system, so a late look-up does no harm. */
struct mapping *map_alloc(void);
void map_free(struct mapping *map);

/* Sets the name of the mapping: a URI, or the path of the descriptor. */
void map_name(struct mapping *map, const char *uri, int fd);
/* Inserts a mapping into the table. Returns 0 or -errno. */
int map_insert(struct mapping *map);
void map_remove(struct mapping *map);
/* Updates the table if the mapped range has another address or size; look-ups find it at any
 * time. */
void map_move(struct mapping *map);

/* Finds the mapping that contains addr, and takes a use of it (until map_leave). Returns NULL if
 * there is none. If the mapping is frozen, the call waits, or returns NULL unless `wait`: when the
 * mapping is thawed, accesses to it are tried again. Lock-free, for the fault path. */
struct mapping *map_look_up(const void *addr, bool wait);
static inline struct mapping *map_find(const void *addr)
{
	return map_look_up(addr, true);
}
static inline struct mapping *map_find_now(const void *addr)
{
	return map_look_up(addr, false);
}
/* Whether a mapping overlaps [addr, addr + len). */
bool map_meets(const void *addr, size_t len);
/* Finds the mapping that begins at base, and makes the caller its only user (until map_thaw and
 * map_leave). Returns NULL if there is none. */
struct mapping *map_find_alone(const void *base);
/* Returns the n-th mapping by address, and takes a use of it; NULL if there are fewer. */
struct mapping *map_nth(size_t n);

/* In a forked child: passes each mapping to fn, and then empties the table. */
void map_fork_child(void (*fn)(struct mapping *map));

#endif
