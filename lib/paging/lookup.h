/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings of the process, and which of them holds an address. */
#ifndef LOOKUP_H
#define LOOKUP_H

#include "paging/mapping.h"

/* A zeroed structure that is never freed, so that a late look-up finds something; NULL: no memory. */
struct mapping *map_alloc(void);
void map_free(struct mapping *map);

/* Its name is a URI, or what the descriptor was opened by. */
void map_name(struct mapping *map, const char *uri, int fd);
/* Makes a mapping known, and forgets it. Returns 0 or -errno. */
int map_insert(struct mapping *map);
void map_remove(struct mapping *map);
/* Its mapped range stands elsewhere or has another size now; nobody misses it meanwhile. */
void map_move(struct mapping *map);

/* The mapping that holds addr, with a use of it taken (map_leave gives it back); waits while it is frozen.
 * NULL: none. Lock-free, for the fault path. */
struct mapping *map_find(const void *addr);
/* The same without waiting; NULL also while it is frozen: when it is thawed, accesses to it are tried again. */
struct mapping *map_find_now(const void *addr);
/* Whether there is one in [addr, addr + len). */
bool map_meets(const void *addr, size_t len);
/* The mapping that begins at base, as its only user (map_thaw and map_leave give it back). NULL: none. */
struct mapping *map_find_alone(const void *base);
/* The n-th mapping by address, with a use; NULL: there are fewer. */
struct mapping *map_nth(size_t n);
size_t map_count(void);

/* Around fork: the table stays whole. In the child, hands each mapping to fn and then knows none. */
void map_fork_prepare(void);
void map_fork_parent(void);
void map_fork_child(void (*fn)(struct mapping *map));

#endif
