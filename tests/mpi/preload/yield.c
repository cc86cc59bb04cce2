/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * yield - preloaded into programs of MPICH where there are more ranks than processors. MPICH waits without rest, and who
 * has something to do gets a processor when the one who waits has used up his turn. Here he who finds nothing to do gives
 * the processor away, as OpenMPI's ranks do when mpi_yield_when_idle is set. If that does not help he sleeps: on a busy
 * machine, who yields comes behind all others each time, and who sleeps is soon woken.
 */
#include <dlfcn.h>
#include <sched.h>
#include <time.h>

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
	static const struct timespec pause = { 0, 50000 };
	static _Thread_local unsigned idle;
	static unsigned (*progress)(void *worker);
	unsigned done;

	if (!progress)
		progress = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
	done = progress(worker);
	idle = done == 0 ? idle + 1 : 0;
	if (idle > 20)
		nanosleep(&pause, NULL);
	else if (idle > 0)
		sched_yield();
	return done;
}
