/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/wait.h"

#include <time.h>

void wait_a_moment(unsigned *waits)
{
	struct timespec pause = { 0, 50000 };

	/* Whoever yields on a busy machine comes behind all others; whoever sleeps is soon woken. */
	if (++*waits > 20)
		nanosleep(&pause, NULL);
}

int wait_for(MPI_Request *request)
{
	unsigned waits = 0;
	int done, code;

	while ((code = MPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done)
		wait_a_moment(&waits);
	return code;
}

void wait_for_all(MPI_Comm comm)
{
	MPI_Request request;

	MPI_Ibarrier(comm, &request);
	wait_for(&request);
}
