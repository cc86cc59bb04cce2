/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting. MPI takes the processor while it waits, which those it waits for may need: so this library asks it now and then,
 * and gives the processor away in between, by sleeping when it takes longer.
 */
#ifndef MAPREDUCE_WAIT_H
#define MAPREDUCE_WAIT_H

#include <mpi.h>

/* Between two questions of which *waits counts how many there have been. */
void wait_a_moment(unsigned *waits);

/* As MPI_Wait, without its status. */
int wait_for(MPI_Request *request);

/* Until all ranks are here: before collective calls to which some come much later than others. */
void wait_for_all(MPI_Comm comm);

#endif
