/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * yield - preloaded into programs of MPICH where there are more ranks than processors. MPICH waits without rest, and who
 * has something to do gets a processor when the one who waits has used up his turn. Here he who finds nothing to do gives
 * the processor away, as OpenMPI's ranks do when mpi_yield_when_idle is set.
 */
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*progress)(void *worker);
	unsigned done;

	if (!progress)
		progress = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
	done = progress(worker);
	if (done == 0)
		sched_yield();
	return done;
}
