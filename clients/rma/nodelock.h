/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks between the ranks of a window on one machine, in memory that all of them map. */
#ifndef NODELOCK_H
#define NODELOCK_H

#include "common/process.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nodelock {
	_Atomic uint64_t next;   /* the next ticket */
	_Atomic uint32_t sleepers; /* changes when a slot becomes free; bit 0: ranks sleep */
	_Atomic uint64_t slot[]; /* of each rank: 0, or the state of its request (nodelock.c) */
};

/* Bit of a slot: the rank wants the lock exclusively. */
#define NODELOCK_ALONE 1u
/* Slot of a rank that goes ahead: its ticket is older than all others. */
#define NODELOCK_FIRST ((uint64_t)4)

/* Parameters of all locks of a window. */
struct nodelocks {
	const struct process_id *processes; /* process of each rank */
	int ranks, me;                      /* number of ranks, and this one */
	void (*idle)(void *arg);            /* called while the rank waits */
	void *arg;                          /* its argument */
};

/* Bytes of a lock for so many ranks: whole cache lines. */
size_t nodelock_size(int ranks);

enum nodelock_how {
	NODELOCK_SHARED,
	NODELOCK_EXCLUSIVE,
	NODELOCK_AHEAD           /* shared, and ahead of ranks that wait */
};

/*
 * Takes a lock that the rank does not hold. The rank that has waited longest is next; ranks that
 * share the lock hold it together. A rank that holds another lock must go ahead when it shares this
 * one, because a rank that waits here may wait for the other lock, too.
 */
void nodelock_take(struct nodelock *l, const struct nodelocks *all, enum nodelock_how how);
void nodelock_drop(struct nodelock *l, const struct nodelocks *all);
/*
 * Sharing in two steps, with a memory barrier of the caller between them. If nodelock_is_shared
 * returns false, a rank may want the lock exclusively, and the caller must take or drop the lock.
 */
static inline void nodelock_show(struct nodelock *l, const struct nodelocks *all)
{
	atomic_store_explicit(&l->slot[all->me], NODELOCK_FIRST, memory_order_relaxed);
}

static inline bool nodelock_is_shared(const struct nodelock *l, const struct nodelocks *all)
{
	int i = 0;

	while (i < all->ranks &&
	       !(atomic_load_explicit(&l->slot[i], memory_order_acquire) & NODELOCK_ALONE))
		i++;
	return i == all->ranks;
}

#endif
