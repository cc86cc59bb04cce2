/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/random.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Spreads each bit of a number over all bits of the result (splitmix64). */
static uint64_t mix(uint64_t n)
{
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
	n = (n ^ n >> 27) * 0x94d049bb133111ebu;
	return n ^ n >> 31;
}

/* Not getrandom(3), which `ummap run` replaces. */
static uint64_t ask_kernel(void)
{
	uint64_t id;

	return syscall(SYS_getrandom, &id, sizeof(id), GRND_NONBLOCK) == sizeof(id) ? id : 0;
}

uint64_t random_id(void)
{
	static _Atomic uint64_t calls;
	uint64_t id = ask_kernel();
	struct timespec now;

	while (id == 0) {
		clock_gettime(CLOCK_REALTIME, &now);
		id = mix((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
		id = mix(id + ((uint64_t)getpid() << 32) + atomic_fetch_add(&calls, 1));
	}
	return id;
}
