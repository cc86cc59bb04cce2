/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stripes: which bytes of a file a store has, and transfers between them and memory. A store is the
 * file from an offset on, or every nth stripe of it.
 */
#ifndef MPIIO_STRIPES_H
#define MPIIO_STRIPES_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Largest transfer of one call, because MPI counts bytes with an int. */
#define MAX_CALL_BYTES ((size_t)1 << 30)

struct stripes {
	uint64_t offset;      /* offset in the file of the store, or of stripe 0 */
	uint64_t stripe;      /* bytes of a stripe; 0: the store is the file from `offset` on */
	uint32_t rank, ranks; /* the store has the stripes rank, rank + ranks, ... */
};

/* Returns the offset in the file of byte `off` of the store. *run: number of bytes of the store
 * that follow each other in the file from there on. */
uint64_t stripes_locate(const struct stripes *s, uint64_t off, uint64_t *run);
/* Returns the size of the store in a file of this size. */
uint64_t stripes_store_size(const struct stripes *s, uint64_t file_size);

/* Reads from byte `off` of the store, from the descriptor fd or, if it is negative, by MPI-IO.
 * Bytes behind the end of the file are zeros. Returns 0 or a negative errno value. */
int stripes_read(const struct stripes *s, MPI_File file, int fd, const struct iovec *iov, int n,
		 uint64_t off);
/* Writes to byte `off` of the store by MPI-IO. Returns 0 or a negative errno value. */
int stripes_write(const struct stripes *s, MPI_File file, const struct iovec *iov, int n,
		  uint64_t off);

/* Returns 0 or a negative errno value for the result of the thread's last call of MPI-IO. The
 * caller must set errno to 0 before that call. */
int mpiio_errno(int code);
/* Returns whether MPI has been initialized and not finalized. */
bool is_mpi_running(void);

#endif
