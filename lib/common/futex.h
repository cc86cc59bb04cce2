/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits on a word of memory (futex(2)), and a lock made of one. All functions may be called in a
 * signal handler and may change errno, except for the lock, which does so only if it waits.
 */
#ifndef COMMON_FUTEX_H
#define COMMON_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void futex_wait_op(int op, _Atomic uint32_t *word, uint32_t value, int ms)
{
	struct timespec limit = { ms / 1000, (long)(ms % 1000) * 1000000 };

	syscall(SYS_futex, word, op, value, ms < 0 ? NULL : &limit, NULL, 0);
}

/*
 * Waits while *word == value, for at most ms milliseconds (negative: without a limit). The wait may
 * end early, so the caller must check its condition again.
 */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t value, int ms)
{
	futex_wait_op(FUTEX_WAIT_PRIVATE, word, value, ms);
}

/* Wakes at most n threads of this process that wait on the word. */
static inline void futex_wake(_Atomic uint32_t *word, int n)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Waits like futex_wait, on a word in memory that processes share. */
static inline void futex_wait_shared(_Atomic uint32_t *word, uint32_t value, int ms)
{
	futex_wait_op(FUTEX_WAIT, word, value, ms);
}

/* Wakes all threads of all processes that wait on a word in shared memory. */
static inline void futex_wake_shared(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/*
 * Waits on a private word and on a shared word until one of them changes, for at most ms
 * milliseconds. Returns 0, or -errno if it did not wait. -EAGAIN: a word differs from its value
 * already. Other errors: the kernel has no such call (before Linux 5.16), or the memory of a word
 * is gone.
 */
int futex_wait_both(_Atomic uint32_t *own, uint32_t own_value, _Atomic uint32_t *shared,
		    uint32_t shared_value, unsigned ms);

/*
 * The lock: 0 free, 1 taken, 2 taken and contended. Locking and unlocking make no system call
 * without contention.
 */
static inline bool futex_trylock(_Atomic uint32_t *word)
{
	uint32_t free = 0;

	return atomic_compare_exchange_strong_explicit(word, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

void futex_lock_contended(_Atomic uint32_t *word);

static inline void futex_lock(_Atomic uint32_t *word)
{
	if (!futex_trylock(word))
		futex_lock_contended(word);
}

/* Waits for the lock for about ms milliseconds at most. Returns whether the caller has it. */
bool futex_lock_within(_Atomic uint32_t *word, int ms);

static inline void futex_unlock(_Atomic uint32_t *word)
{
	if (atomic_exchange_explicit(word, 0, memory_order_release) == 2)
		futex_wake(word, 1);
}

#endif
