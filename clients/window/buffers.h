/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of MPI-IO that are in storage: pinned while they are transferred. */
#ifndef FILEIO_H
#define FILEIO_H

#include <mpi.h>
#include <stddef.h>

/* What is pinned; len 0: nothing. */
struct pin {
	void *addr;
	size_t len;
};

/* A pin that lasts. */
struct kept;

/* The bytes of a buffer, holes of its type included, as far as they are stored and out of the kernel's reach. */
struct pin fileio_reach(const void *buf, MPI_Count count, MPI_Datatype type);
/* MPI_SUCCESS, or what the call is to return. `prot`: what the transfer does with the buffer. */
int fileio_pin(MPI_File file, const void *buf, MPI_Count count, MPI_Datatype type, int prot, struct pin *p);
void fileio_unpin(const struct pin *p);

/* Makes a request of what has been done, with this status, which the request frees. */
int fileio_complete(MPI_Status *done, MPI_Request *request);

/* NULL without a failure: there is nothing to keep. */
struct kept *fileio_keep(MPI_File file, const void *buf, MPI_Count count, MPI_Datatype type, int prot, int *failed);
/* The transfer has begun: until this request is complete, or, without one, until MPI_File_..._end. k may be NULL. */
void fileio_keep_until(struct kept *k, MPI_Request request);
void fileio_drop(struct kept *k);
/* A split transfer of the file has ended. */
void fileio_split_ended(MPI_File file);

#endif
