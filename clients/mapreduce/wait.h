/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for other ranks. A blocking call of MPI uses the processor while it waits, and the ranks
 * that it waits for may need this processor. These functions test for completion instead, and sleep
 * between two tests.
 */
#ifndef MAPREDUCE_WAIT_H
#define MAPREDUCE_WAIT_H

#include <mpi.h>

/* Pauses between two tests. *tests counts the tests so far: the first ones follow without sleep. */
void wait_before_retry(unsigned *tests);

/* Completes the request as MPI_Wait does, without a status. */
int wait_for_request(MPI_Request *request);

/* Waits until all ranks have called this function. Use it before collective calls which some ranks
 * reach much later than others. */
void wait_for_all_ranks(MPI_Comm comm);

#endif
