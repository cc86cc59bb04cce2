/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets without MPI: for MPI_Put and its like, with counts of any size. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* The arguments of a put (from) or get (to). */
struct transfer {
	const void *from;
	void *to;
	int64_t count;
	MPI_Datatype type;
	int rank;
	MPI_Aint disp;
	int64_t target_count;
	MPI_Datatype target_type;
};

/* Whether the copy could be made; if not, nothing was done. request: where one for it goes, complete; NULL: none. */
bool transfer_put(const struct transfer *t, MPI_Win win, MPI_Request *request);
bool transfer_get(const struct transfer *t, MPI_Win win, MPI_Request *request);
/* MPI has taken an operation: passes on its code. */
int transfer_noted(int code, int rank, MPI_Win win);

#endif
