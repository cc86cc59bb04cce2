/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-mpi.h - calls of libummap-mpi-openmpi and libummap-mpi-mpich that MPI itself does not have;
 * see ummap-mpi(7).
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
 * Makes the mappings of all ranks durable; collective over comm. Each rank passes an address of its
 * own memory: any address in window memory or memory of MPI_Alloc_mem that is in storage, the base
 * of a mapping of ummpi_open or ummap_open, or NULL if the rank has nothing to sync. For a window
 * with the hint storage_alloc_consistent, the call makes a checkpoint of all parts, which a restart
 * opens as a whole. If all mappings are stripes of one file by the driver mpiio, the ranks write
 * together. Returns MPI_SUCCESS, or an MPI error that is the same at all ranks, after the error
 * handler of comm was called; MPI_Error_string returns the message. Changes that could not be
 * written stay in memory.
 */
int ummpi_sync_all(MPI_Comm comm, void *addr);

/* A commit of windows by ummpi_commit_begin. */
struct ummpi_commit;

/*
 * Begins to make the parts of n windows durable at all ranks, while the ranks go on. The call is
 * collective over comm, whose ranks must be those of the windows. The contents are those of one
 * moment: no rank returns before all ranks have begun, and RMA operations on the windows must be
 * complete at the call. Stores after the call are not part of the commit. For windows with the hint
 * storage_alloc_consistent it is a checkpoint. Shared windows, object windows and windows that the
 * kernel maps are refused (MPI_ERR_WIN). *commit: the handle, for one of the calls below.
 */
int ummpi_commit_begin(const MPI_Win *windows, int n, MPI_Comm comm, struct ummpi_commit **commit);

/*
 * ummpi_commit_wait waits until the contents of all ranks are durable, frees the handle and sets
 * *commit to NULL; collective. ummpi_commit_test does not wait: *done tells whether the commit has
 * ended at all ranks, and then the call does what ummpi_commit_wait does. Ranks may mix the two. If
 * *commit is NULL, nothing is to be done. The windows may have been freed before.
 * Both return MPI_SUCCESS or an MPI error that is the same at all ranks, as ummpi_sync_all does.
 */
int ummpi_commit_wait(struct ummpi_commit **commit);
int ummpi_commit_test(struct ummpi_commit **commit, int *done);

/*
 * Makes the last k ranks of comm on each machine the I/O ranks of the machine; collective. They
 * write to the stores behind the filter ioranks+ that the other ranks open afterwards
 * (ummap-ioranks(1)). At these, *compute is a communicator of all of them, in the order of comm. At
 * an I/O rank, the call returns when the other ranks of its machine have freed *compute or have
 * called MPI_Finalize, and *compute is MPI_COMM_NULL. Each machine must have more than k ranks.
 * Returns MPI_SUCCESS or an MPI error that is the same at all ranks.
 */
int ummpi_io_split(MPI_Comm comm, int k, MPI_Comm *compute);

/* Does the same as ummap_open, for a mapping that ummpi_sync_all can write together with those of
 * other ranks. */
int ummpi_open(const char *uri, size_t size, off_t offset, int prot, const struct ummap_attr *attr,
	       void **addr);

/*
 * The assert argument of MPI_Win_lock and MPI_Win_lock_all for an epoch with an operation, alone or
 * with MPI_MODE_NOCHECK. In this epoch, a put combines its data into the target, and a get combines
 * the target's data into the local buffer, each element atomically, as MPI_Accumulate does (Section
 * 7.4 of the thesis that ummap.h names). `op` is MPI_REPLACE or a predefined operation of
 * MPI_Reduce; any other operation makes the lock fail with MPI_ERR_OP. Without the library, MPI
 * refuses the lock (MPI_ERR_ASSERT).
 */
#define UMMPI_OP(op) ummpi_op(op)

/* The operations in the order of their numbers, which are in bits that no MPI_MODE_* constant has.
 */
#define UMMPI_OPS { MPI_REPLACE, MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, \
		    MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MAXLOC, MPI_MINLOC }
enum { UMMPI_OP_SHIFT = 20, UMMPI_OP_MASK = 31 << UMMPI_OP_SHIFT };

/* Returns the bits of an operation, or all bits of the mask for an operation that is not in the
 * list. */
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
