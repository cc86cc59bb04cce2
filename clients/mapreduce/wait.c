/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/wait.h"

#include <time.h>

#define TESTS_WITHOUT_SLEEP 20
#define RETRY_SLEEP_NS 50000

void wait_before_retry(unsigned *tests)
{
	const struct timespec pause = { 0, RETRY_SLEEP_NS };

	/* sched_yield(2) would put this thread behind all others of a busy machine; a thread that
	 * sleeps is woken soon. */
	if (++*tests > TESTS_WITHOUT_SLEEP)
		nanosleep(&pause, NULL);
}

int wait_for_request(MPI_Request *request)
{
	unsigned tests = 0;
	int done, code;

	while ((code = MPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done)
		wait_before_retry(&tests);
	return code;
}

void wait_for_all_ranks(MPI_Comm comm)
{
	MPI_Request request;

	MPI_Ibarrier(comm, &request);
	wait_for_request(&request);
}
