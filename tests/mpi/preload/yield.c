/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * yield - preloaded into programs of MPICH.
 *
 * MPICH waits for messages in a loop, so on a machine with fewer processors than ranks, the rank
 * that it waits for gets a processor only after a whole time slice. Here a rank without work calls
 * sched_yield(2), as Open MPI's ranks do with mpi_yield_when_idle. On a busy machine, a rank that
 * yields comes behind all other processes, so after some calls without work it sleeps instead.
 *
 * MPICH 4.2 aborts coarray programs at their end: images of libcaf leave messages to each other,
 * and free the communicator. libummap-mpi receives them where coarrays are stored; here programs
 * that keep their coarrays in memory receive them.
 */
#include <dlfcn.h>
#include <mpi.h>
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

int MPI_Comm_free(MPI_Comm *comm)
{
	MPI_Status status;
	int found = 1, word;

	while (PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, *comm, &found, &status) == MPI_SUCCESS &&
	       found)
		PMPI_Recv(&word, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, *comm,
			  MPI_STATUS_IGNORE);
	return PMPI_Comm_free(comm);
}
