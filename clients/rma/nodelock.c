/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lamport's bakery algorithm, with tickets from a counter. A rank shows that it chooses, takes a
 * ticket, shows the ticket in its slot, and waits for each slot with an older one, unless both only
 * share. So ranks hold the lock in the order in which they asked, and the state of a rank is in its
 * own slot alone. If a rank dies, a rank that waits for it finds the process gone, and clears the
 * slot. The memory that the dead rank was changing may then be half changed.
 *
 * A rank sees all older tickets: a rank shows that it chooses before it takes its ticket, and the
 * counter orders that. It need not see newer tickets.
 *
 * A rank that goes ahead has a ticket older than all others, and waits only for a rank that holds
 * the lock exclusively. Such a rank shows that it is in, and then looks once more for ranks that
 * went ahead. If one of both has not seen the other, the other has seen it. If both have seen each
 * other, the rank with the ticket waits. A rank that shares the lock goes ahead, too, unless
 * another one wants the lock exclusively, or may: it then overtakes no rank, and changes only its
 * own slot.
 *
 * A waiting rank spins, then yields the processor, then sleeps until a slot changes. Meanwhile it
 * calls `idle`, because others may wait for operations that only this process can make.
 */
#include "rma/nodelock.h"

#include "common/futex.h"

#include <sched.h>

#define CACHE_LINE 64
/*
 * A slot is 0, or a ticket and two bits: the rank wants the lock exclusively, and it holds it so. A
 * rank that chooses may want the lock in any way.
 */
#define CHOOSING UINT64_MAX
#define EXCLUSIVE NODELOCK_ALONE
#define IN 2u
#define TICKET 4u
#define FIRST NODELOCK_FIRST

/* Numbers of looks at a slot without and with sched_yield(2), before the rank sleeps. */
#define MAX_SPINS 400
#define MAX_YIELDS 50
/* Number of sleeps of a millisecond after which the other rank's process is looked for. */
#define SLEEPS_PER_CHECK 10

size_t nodelock_size(int ranks)
{
	size_t size = sizeof(struct nodelock) + (size_t)ranks * sizeof(uint64_t);

	return (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
}

/* ---- Waiting ---- */

static inline void pause_processor(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static bool must_wait_for(uint64_t theirs, uint64_t mine)
{
	if (theirs == 0)
		return false;
	if (theirs == CHOOSING)
		return true;
	return theirs / TICKET < mine / TICKET && ((theirs | mine) & EXCLUSIVE);
}

/*
 * Waits once more for a slot. The rank sleeps on `sleepers` with bit 0 set; a rank that clears a
 * slot clears the bit and increases the rest.
 */
static void wait_once(struct nodelock *l, const struct nodelocks *all, int rank, uint64_t theirs,
		      unsigned n)
{
	uint32_t value;

	if (n < MAX_SPINS) {
		pause_processor();
		return;
	}
	all->idle(all->arg);
	if (n < MAX_SPINS + MAX_YIELDS) {
		sched_yield();
		return;
	}
	value = atomic_fetch_or(&l->sleepers, 1) | 1;
	if (atomic_load(&l->slot[rank]) == theirs)
		futex_wait_shared(&l->sleepers, value, 1);
	if ((n - MAX_SPINS - MAX_YIELDS) % SLEEPS_PER_CHECK == SLEEPS_PER_CHECK - 1 &&
	    !is_alive(all->processes[rank]))
		atomic_compare_exchange_strong(&l->slot[rank], &theirs, 0);
}

static inline void wake_sleepers(struct nodelock *l)
{
	uint32_t seen = atomic_load_explicit(&l->sleepers, memory_order_relaxed);

	if (!(seen & 1))
		return;
	/* A rank that goes to sleep later sets the bit again. */
	atomic_compare_exchange_strong(&l->sleepers, &seen, (seen & ~1u) + 2);
	futex_wake_shared(&l->sleepers);
}

static void wait_for(struct nodelock *l, const struct nodelocks *all, int rank, uint64_t mine)
{
	uint64_t theirs;

	for (unsigned n = 0; must_wait_for(theirs = atomic_load(&l->slot[rank]), mine);
	     n++)
		wait_once(l, all, rank, theirs, n);
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
		unsigned n = 0;

		while ((theirs = atomic_load(&l->slot[i])) != CHOOSING && theirs & IN)
			wait_once(l, all, i, theirs, n++);
	}
}

static inline bool try_share(struct nodelock *l, const struct nodelocks *all)
{
	atomic_store(&l->slot[all->me], FIRST);
	return nodelock_is_shared(l, all);
}

static bool is_any_ahead(const struct nodelock *l, const struct nodelocks *all)
{
	int i = 0;

	while (i < all->ranks && atomic_load(&l->slot[i]) != FIRST)
		i++;
	return i < all->ranks;
}

/* Not inlined, because most ranks that share a lock need no ticket. */
static __attribute__((noinline)) void
take_ticket(struct nodelock *l, const struct nodelocks *all, enum nodelock_how how)
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
	while (is_any_ahead(l, all)) {
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
	else if (how == NODELOCK_EXCLUSIVE || !try_share(l, all))
		take_ticket(l, all, how);
}

void nodelock_drop(struct nodelock *l, const struct nodelocks *all)
{
	/*
	 * A rank that goes to sleep just now may be seen too late, and then sleeps for a
	 * millisecond: a locked instruction for each unlock would cost more.
	 */
	atomic_store_explicit(&l->slot[all->me], 0, memory_order_release);
	wake_sleepers(l);
}
