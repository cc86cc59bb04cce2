/* SPDX-License-Identifier: BSD-3-Clause */
/* A lock for drivers that run in signal handlers: a word, 0 free, 1 taken, 2 taken and somebody may wait. */
#ifndef DRIVERS_FUTEX_H
#define DRIVERS_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void futex_wait(_Atomic uint32_t *word, uint32_t value, const struct timespec *most)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, most, NULL, 0);
}

static inline void futex_wake(_Atomic uint32_t *word, int threads)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static inline bool futex_trylock(_Atomic uint32_t *word)
{
	uint32_t is_free = 0;

	return atomic_compare_exchange_strong(word, &is_free, 1);
}

static inline void futex_lock(_Atomic uint32_t *word)
{
	if (futex_trylock(word))
		return;
	while (atomic_exchange(word, 2) != 0)
		futex_wait(word, 2, NULL);
}

static inline void futex_unlock(_Atomic uint32_t *word)
{
	if (atomic_exchange(word, 0) == 2)
		futex_wake(word, 1);
}

#endif
