/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks between the ranks of a window on one machine, in memory that all of them have mapped. */
#ifndef NODELOCK_H
#define NODELOCK_H

#include "common/process.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nodelock {
	_Atomic uint64_t next;   /* ticket */
	_Atomic uint32_t sleepers; /* some sleep until a slot changes */
	_Atomic uint64_t slot[]; /* of each rank: 0, or what it wants or has (nodelock.c) */
};

/* In a slot: it is wanted alone. And the ticket of those who go ahead; others have greater ones. */
#define NODELOCK_ALONE 1u
#define NODELOCK_FIRST ((uint64_t)4)

/* A rank's view of the locks of a window. */
struct nodelocks {
	const struct process_id *processes; /* process of each rank */
	int ranks, me;
	void (*idle)(void *arg); /* called while waiting */
	void *arg;
};

/* Bytes of a lock for so many ranks: whole cache lines. */
size_t nodelock_size(int ranks);

enum nodelock_how {
	NODELOCK_SHARED,
	NODELOCK_EXCLUSIVE,
	NODELOCK_AHEAD           /* shared, and ahead of those that wait */
};

/* A rank takes a lock once at a time. Whoever has waited longest is next; those that share it are in together. Who has a lock
 * already, and shares another, goes ahead: somebody who waits there could be waiting for the first. */
void nodelock_take(struct nodelock *l, const struct nodelocks *all, enum nodelock_how how);
void nodelock_drop(struct nodelock *l, const struct nodelocks *all);
/* Sharing it in two steps, for those who have a barrier to memory between these anyway. false: somebody may want the lock
 * alone, and comes first; it has to be taken or dropped. */
static inline void nodelock_show(struct nodelock *l, const struct nodelocks *all)
{
	atomic_store_explicit(&l->slot[all->me], NODELOCK_FIRST, memory_order_relaxed);
}

static inline bool nodelock_is_shared(const struct nodelock *l, const struct nodelocks *all)
{
	int i = 0;

	while (i < all->ranks && !(atomic_load_explicit(&l->slot[i], memory_order_acquire) & NODELOCK_ALONE))
		i++;
	return i == all->ranks;
}

#endif
