/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of what has been done already. */
#ifndef REQUEST_H
#define REQUEST_H

#include <mpi.h>

/* Makes a request that is complete, with this status, which was allocated by malloc(3) and is freed with the request, or if there
 * is none; NULL: an empty one. Returns an MPI code. */
int request_complete(MPI_Status *done, MPI_Request *request);

#endif
