/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-mpi.h - what libummap-mpi-openmpi and libummap-mpi-mpich have beside MPI's own calls; see ummap-mpi(7).
 */
#ifndef UMMAP_MPI_H
#define UMMAP_MPI_H

#include <mpi.h>
#include <ummap.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Collective over comm: makes the mappings of all ranks durable, each rank's that at its own addr:
 * the base of a window, of memory of MPI_Alloc_mem, or of a mapping of ummpi_open or ummap_open;
 * NULL: this rank has none. Where all are stripes of one file through the driver mpiio, the ranks
 * write together. With the hint storage_alloc_consistent, the call makes a checkpoint of all parts
 * of the window, which a restart opens as a whole. Returns MPI_SUCCESS, or an error of MPI's, the
 * same at all ranks, after calling comm's error handler; MPI_Error_string returns the message.
 * Changes that could not be written stay in memory.
 */
int ummpi_sync_all(MPI_Comm comm, void *addr);

/* ummap_open of ummap.h, and ummpi_sync_all will know which handle of the driver mpiio is behind the mapping. */
int ummpi_open(const char *uri, size_t size, off_t offset, int prot, const struct ummap_attr *attr, void **addr);

/*
 * For the assert of MPI_Win_lock and MPI_Win_lock_all, alone or with MPI_MODE_NOCHECK: in that epoch, a put combines what it
 * brings into the target, and a get combines the target into what the origin has, each element atomically, as
 * MPI_Accumulate does (thesis, Section 7.4). `op` is MPI_REPLACE, or a predefined operation of MPI_Reduce; with another one
 * the lock fails with MPI_ERR_OP. Without the library, MPI refuses the lock (MPI_ERR_ASSERT).
 */
#define UMMPI_OP(op) ummpi_op(op)

/* Those that there are, in the order of their numbers, which stand in bits that no MPI_MODE_* has. */
#define UMMPI_OPS { MPI_REPLACE, MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, \
		    MPI_MAXLOC, MPI_MINLOC }
enum { UMMPI_OP_SHIFT = 20, UMMPI_OP_MASK = 31 << UMMPI_OP_SHIFT };

static inline int ummpi_op(MPI_Op op)
{
	const MPI_Op ops[] = UMMPI_OPS;

	for (int i = 0; i < (int)(sizeof(ops) / sizeof(*ops)); i++) {
		if (ops[i] == op)
			return (i + 1) << UMMPI_OP_SHIFT;
	}
	return UMMPI_OP_MASK;
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
