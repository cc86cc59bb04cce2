/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of operations that are complete. */
#ifndef REQUEST_H
#define REQUEST_H

#include <mpi.h>

/*
 * Makes a request that is complete. The status must come from malloc(3), and is freed in any case;
 * NULL: an empty status. Returns an MPI code.
 */
int request_complete(MPI_Status *done, MPI_Request *request);

#endif
