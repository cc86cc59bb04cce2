/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sleep - preloaded into Open MPI programs with more ranks than processors. Ranks without work
 * yield the processor (mpi_yield_when_idle). On a busy machine, a thread that yields runs after all
 * others, but a thread that sleeps runs soon after it wakes. Therefore, ranks sleep instead.
 */
#include <sched.h>
#include <time.h>

int sched_yield(void)
{
	static const struct timespec pause = { 0, 50000 };

	nanosleep(&pause, NULL);
	return 0;
}
