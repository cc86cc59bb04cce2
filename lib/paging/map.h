/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings of the process, and which of them holds an address. */
#ifndef MAP_H
#define MAP_H

#include "paging/set.h"
#include "node/table.h"

struct map {
	struct set set;
	bool blank;                    /* UMMAP_BLANK, or ummap's read_file 0 */
	int flush_interval;            /* seconds; 0: never */
	char name[TABLE_NAME_LEN];     /* of the store, for people: its end, if it is long */
	_Atomic uint32_t sync_lock;    /* one at a time completes what has an order, or closes the older target */
	struct map *next_free;
};

/* A zeroed structure that is never freed, so that a late look-up finds something; NULL: no memory. */
struct map *map_alloc(void);
void map_free(struct map *map);

/* Its name is a URI, or what the descriptor was opened by. */
void map_name(struct map *map, const char *uri, int fd);
/* Makes a mapping known, and forgets it. Returns 0 or -errno. */
int map_insert(struct map *map);
void map_remove(struct map *map);
/* Its view stands elsewhere or has another size now; nobody misses it meanwhile. */
void map_move(struct map *map);

/* The mapping that holds addr, with a use of it taken (set_put gives it back); waits while it is frozen.
 * NULL: none. Lock-free, for the fault path. */
struct map *map_get(const void *addr);
/* The same without waiting; NULL also while it is frozen: when it is thawed, accesses to it are tried again. */
struct map *map_try(const void *addr);
/* Whether there is one in [addr, addr + len). */
bool map_meets(const void *addr, size_t len);
/* The mapping that begins at base, as its only user (set_thaw and set_put give it back). NULL: none. */
struct map *map_get_alone(const void *base);
/* The n-th mapping by address, with a use; NULL: there are fewer. */
struct map *map_get_nth(size_t n);
size_t map_count(void);

/* Around fork: the table stays whole. In the child, hands each mapping to fn and then knows none. */
void map_fork_prepare(void);
void map_fork_parent(void);
void map_fork_child(void (*fn)(struct map *map));

/* Writes what of [first, last) is not in the current target yet; all of it, where that has an order. 0 or -errno. */
int map_complete(struct map *map, size_t first, size_t last);
/* Writes all changes, carried ones included, and makes them durable. 0, or -errno with a sentence. */
int map_sync(struct map *map);
/* Writes some of what a sync of the segments from *at to `last` would write, and goes past it. false: there is no more that
 * could be written by parts; what failed the next sync tells. */
bool map_write_some(struct map *map, size_t *at, size_t last);
/* The sentence for changes that storage did not take, or may have lost. */
void map_explain(const struct map *map, int err);
/* Closes the stores of targets other than the current one. */
void map_close_old(struct map *map);

#endif
