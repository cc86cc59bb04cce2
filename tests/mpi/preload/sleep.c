/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sleep - preloaded into programs of OpenMPI where there are more ranks than processors. Its ranks yield when they find nothing
 * to do (mpi_yield_when_idle); on a busy machine, who yields comes behind all others each time, and who sleeps is soon woken.
 */
#include <sched.h>
#include <time.h>

int sched_yield(void)
{
	static const struct timespec pause = { 0, 50000 };

	nanosleep(&pause, NULL);
	return 0;
}
