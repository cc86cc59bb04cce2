/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A map from blocks of a store to places in another file: a number for each block that has one, 0 for all others.
 * Room is taken for parts of the store that have entries: 4 KiB for 512 blocks. Looking up takes no lock, allocates nothing
 * and may run beside everything but blockmap_free; so may all calls in signal handlers.
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
/* There has to be room. Two that set one block at once are the caller's matter. */
void blockmap_set(struct blockmap *m, uint64_t block, uint64_t value);
/* Makes it 0 if it is still `value`, which is not 0, and says so. */
bool blockmap_drop(struct blockmap *m, uint64_t block, uint64_t value);
/* How many of the n blocks from `first` on stand side by side there, too: their places are *value, *value + step and so
 * on; or have none, with *value 0. At least 1. */
uint64_t blockmap_run(struct blockmap *m, uint64_t first, uint64_t n, uint64_t step, uint64_t *value);
/* The first block from *block on that has a place; false: there is none. */
bool blockmap_next(struct blockmap *m, uint64_t *block, uint64_t *value);
/* Empties it, and gives its memory back; nobody else uses it. */
void blockmap_free(struct blockmap *m);

#endif
