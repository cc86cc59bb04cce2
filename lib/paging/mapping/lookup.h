/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings of the process, and which of them holds an address. */
#ifndef LOOKUP_H
#define LOOKUP_H

#include "paging/mapping/mapping.h"

/* A zeroed structure whose memory is never freed, so that a late look-up is harmless; NULL: no memory. */
struct mapping *map_alloc(void);
void map_free(struct mapping *map);

/* Sets its name: a URI, or the path of the descriptor. */
void map_name(struct mapping *map, const char *uri, int fd);
/* Inserts a mapping into the table, and removes it. Returns 0 or -errno. */
int map_insert(struct mapping *map);
void map_remove(struct mapping *map);
/* Its mapped range has another address or size now; look-ups find it at all times. */
void map_move(struct mapping *map);

/* The mapping that holds addr, with a use of it taken (map_leave gives it back); waits while it is frozen.
 * NULL: none. Lock-free, for the fault path. */
struct mapping *map_find(const void *addr);
/* The same without waiting; NULL also while the mapping is frozen: when it is thawed, accesses to it are tried
 * again. */
struct mapping *map_find_now(const void *addr);
/* Whether a mapping overlaps [addr, addr + len). */
bool map_meets(const void *addr, size_t len);
/* The mapping that begins at base; the caller becomes its only user (until map_thaw and map_leave). NULL: none. */
struct mapping *map_find_alone(const void *base);
/* The n-th mapping by address, with a use of it taken; NULL: there are fewer. */
struct mapping *map_nth(size_t n);
size_t map_count(void);

/* In a forked child: passes each mapping to fn, and then empties the table. */
void map_fork_child(void (*fn)(struct mapping *map));

#endif
