/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lamport's bakery, with tickets from a counter: a rank says that it chooses, takes a ticket, shows it in its slot, and
 * waits for each slot that has an older one, unless both only share. So ranks come in the order in which they asked, and
 * what a rank has is in its own slot alone: if it dies, whoever waits for it finds the process gone, and clears the slot.
 * What the dead one was changing may be half changed then, as in memory that it had mapped.
 *
 * A rank sees everybody whose ticket is older: such a one has said that it chooses before it took its ticket, and taking
 * tickets is ordered by the counter. Those with newer tickets it need not see.
 *
 * Who goes ahead has a ticket that is older than all, and waits only for a rank that has the lock alone. Such a rank says in
 * its slot that it is in, and then looks once more for those who went ahead: if one of both has not seen the other, the
 * other has seen it. Both may have: then the one with the ticket waits. Who shares the lock goes ahead, too, unless somebody
 * wants it alone, or may: there is nobody then whose turn that would take, and nothing but its own slot to be changed.
 *
 * A waiter spins, then gives the processor away, then sleeps until a slot changes; every so often it calls `idle`, for
 * others may wait for what only this process can do.
 */
#include "rma/nodelock.h"

#include "common/futex.h"

#include <sched.h>

#define LINE 64
/* A slot: nothing, or a ticket, how it wants the lock, and whether it has it alone. Who chooses may want it in any way. */
#define CHOOSING UINT64_MAX
#define EXCLUSIVE NODELOCK_ALONE
#define IN 2u
#define TICKET 4u
#define FIRST NODELOCK_FIRST

/* Looks at a slot, before the next means is taken. */
#define SPINS 400
#define YIELDS 50
/* Sleeps of a millisecond, before the process is looked for. */
#define SLEEPS 10

size_t nodelock_size(int ranks)
{
	size_t size = sizeof(struct nodelock) + (size_t)ranks * sizeof(uint64_t);

	return (size + LINE - 1) & ~(size_t)(LINE - 1);
}

/* ---- Waiting ---- */

static inline void pause_a_moment(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static bool is_in_the_way(uint64_t theirs, uint64_t mine)
{
	if (theirs == 0)
		return false;
	if (theirs == CHOOSING)
		return true;
	return theirs / TICKET < mine / TICKET && ((theirs | mine) & EXCLUSIVE);
}

/* Sleeps on `sleepers`: its lowest bit is set then, and whoever clears a slot clears it and counts in the others. */
static void wait_longer(struct nodelock *l, const struct nodelocks *all, int rank, uint64_t theirs, unsigned n)
{
	uint32_t value;

	if (n < SPINS) {
		pause_a_moment();
		return;
	}
	all->idle(all->arg);
	if (n < SPINS + YIELDS) {
		sched_yield();
		return;
	}
	value = atomic_fetch_or(&l->sleepers, 1) | 1;
	if (atomic_load(&l->slot[rank]) == theirs)
		futex_wait_shared(&l->sleepers, value, 1);
	if ((n - SPINS - YIELDS) % SLEEPS == SLEEPS - 1 && !is_alive(all->processes[rank]))
		atomic_compare_exchange_strong(&l->slot[rank], &theirs, 0);
}

static inline void wake_sleepers(struct nodelock *l)
{
	uint32_t seen = atomic_load_explicit(&l->sleepers, memory_order_relaxed);

	if (!(seen & 1))
		return;
	/* Nobody sleeps on this value any more; who comes to sleep sets the mark again. */
	atomic_compare_exchange_strong(&l->sleepers, &seen, (seen & ~1u) + 2);
	futex_wake_shared(&l->sleepers);
}

static void wait_for(struct nodelock *l, const struct nodelocks *all, int rank, uint64_t mine)
{
	uint64_t theirs;

	for (unsigned n = 0; is_in_the_way(theirs = atomic_load(&l->slot[rank]), mine); n++)
		wait_longer(l, all, rank, theirs, n);
}

static inline void wait_for_all(struct nodelock *l, const struct nodelocks *all, uint64_t mine)
{
	for (int i = 0; i < all->ranks; i++) {
		if (i != all->me && atomic_load_explicit(&l->slot[i], memory_order_acquire))
			wait_for(l, all, i, mine);
	}
}

/* ---- The lock ---- */

static void go_ahead(struct nodelock *l, const struct nodelocks *all)
{
	uint64_t theirs;

	atomic_store(&l->slot[all->me], FIRST);
	for (int i = 0; i < all->ranks; i++) {
		for (unsigned n = 0; (theirs = atomic_load(&l->slot[i])) != CHOOSING && theirs & IN; n++)
			wait_longer(l, all, i, theirs, n);
	}
}

static inline bool slip_in(struct nodelock *l, const struct nodelocks *all)
{
	atomic_store(&l->slot[all->me], FIRST);
	return nodelock_is_shared(l, all);
}

static bool is_anybody_ahead(const struct nodelock *l, const struct nodelocks *all)
{
	int i = 0;

	while (i < all->ranks && atomic_load(&l->slot[i]) != FIRST)
		i++;
	return i < all->ranks;
}

/* Not inlined: most that share do without. */
static __attribute__((noinline)) void take_turn(struct nodelock *l, const struct nodelocks *all, enum nodelock_how how)
{
	_Atomic uint64_t *slot = &l->slot[all->me];
	uint64_t mine;

	atomic_store_explicit(slot, CHOOSING, memory_order_relaxed);
	mine = (atomic_fetch_add_explicit(&l->next, 1, memory_order_acq_rel) + 2) * TICKET +
	       (how == NODELOCK_EXCLUSIVE ? EXCLUSIVE : 0);
	atomic_store_explicit(slot, mine, memory_order_release);
	wait_for_all(l, all, mine);
	if (how != NODELOCK_EXCLUSIVE)
		return;
	atomic_store(slot, mine | IN);
	while (is_anybody_ahead(l, all)) {
		atomic_store(slot, mine);
		wake_sleepers(l);
		wait_for_all(l, all, mine);
		atomic_store(slot, mine | IN);
	}
}

void nodelock_take(struct nodelock *l, const struct nodelocks *all, enum nodelock_how how)
{
	if (how == NODELOCK_AHEAD)
		go_ahead(l, all);
	else if (how == NODELOCK_EXCLUSIVE || !slip_in(l, all))
		take_turn(l, all, how);
}

void nodelock_drop(struct nodelock *l, const struct nodelocks *all)
{
	/* Who goes to sleep at this very moment may be seen too late, and then sleeps for its millisecond: a locked instruction
	 * for each unlock would cost more. */
	atomic_store_explicit(&l->slot[all->me], 0, memory_order_release);
	wake_sleepers(l);
}
