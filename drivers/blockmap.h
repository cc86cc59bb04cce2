/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A map from blocks of a store to places in another file: a number for each block that has a place,
 * and 0 for all others. Each 512 blocks with entries take 4 KiB of memory. A lookup takes no lock,
 * allocates nothing, and may run at the same time as any call but blockmap_free. All calls may run
 * in signal handlers.
 */
#ifndef DRIVERS_BLOCKMAP_H
#define DRIVERS_BLOCKMAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct blockmap_node;
struct blockmap_chunk;

/* All zeros: empty. */
struct blockmap {
	struct blockmap_node *_Atomic root;
	_Atomic uint64_t count;           /* entries that are not 0 */
	_Atomic uint32_t lock;            /* a leaf, of what follows */
	struct blockmap_chunk *chunks;    /* memory for nodes */
};

/* Makes room for n blocks from `first` on: 0, or -ENOMEM. */
int blockmap_reserve(struct blockmap *m, uint64_t first, uint64_t n);
uint64_t blockmap_get(struct blockmap *m, uint64_t block);
/* The caller has made room, and lets no two threads set one block at the same time. */
void blockmap_set(struct blockmap *m, uint64_t block, uint64_t value);
/* Makes an entry 0 if it still is `value`, which is not 0. Returns whether it was. */
bool blockmap_drop(struct blockmap *m, uint64_t block, uint64_t value);
/* Returns how many of the n blocks from `first` on have consecutive places: *value, *value + step
 * and so on; or how many have none, with *value 0. At least 1. */
uint64_t blockmap_run(struct blockmap *m, uint64_t first, uint64_t n, uint64_t step,
		      uint64_t *value);
/* The first block from *block on that has a place; false: there is none. */
bool blockmap_next(struct blockmap *m, uint64_t *block, uint64_t *value);
/* Empties the map, and frees its memory. No other thread uses the map. */
void blockmap_free(struct blockmap *m);

#endif
