/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of common/futex.h that are too long to be inline. */
#include "common/futex.h"

#include <errno.h>

/* A lock is held for about a microsecond or for the time of an I/O: spin for the first kind. */
#define LOCK_SPINS 100

/* Names of Linux 5.16, which older headers lack. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define WAIT_32_BITS 2

/* The kernel's struct futex_waitv. */
struct wait_word {
	uint64_t value, address;
	uint32_t flags, reserved;
};

int futex_wait_both(_Atomic uint32_t *own, uint32_t own_value, _Atomic uint32_t *shared,
		    uint32_t shared_value, unsigned ms)
{
	struct wait_word both[2] = {
		{ own_value, (uintptr_t)own, WAIT_32_BITS | FUTEX_PRIVATE_FLAG, 0 },
		{ shared_value, (uintptr_t)shared, WAIT_32_BITS, 0 },
	};
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += (long)(ms % 1000) * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	if (syscall(SYS_futex_waitv, both, 2, 0, &end, CLOCK_MONOTONIC) >= 0 ||
	    errno == ETIMEDOUT || errno == EINTR)
		return 0;
	return -errno;
}

void futex_lock_contended(_Atomic uint32_t *word)
{
	for (int i = 0; i < LOCK_SPINS; i++) {
		if (atomic_load_explicit(word, memory_order_relaxed) == 0 && futex_trylock(word))
			return;
	}
	while (atomic_exchange_explicit(word, 2, memory_order_acquire) != 0)
		futex_wait(word, 2, -1);
}

bool futex_lock_within(_Atomic uint32_t *word, int ms)
{
	if (futex_trylock(word) || atomic_exchange_explicit(word, 2, memory_order_acquire) == 0)
		return true;
	futex_wait(word, 2, ms);
	return atomic_exchange_explicit(word, 2, memory_order_acquire) == 0;
}
