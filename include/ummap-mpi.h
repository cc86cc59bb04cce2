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
 * Collective over comm: makes the mappings of all ranks durable, each rank's that at its own addr: the base of a window, of
 * memory of MPI_Alloc_mem, or of a mapping of ummpi_open or ummap_open; NULL: this rank has none. Where all are stripes of
 * one file through the driver mpiio, the ranks write together. Returns MPI_SUCCESS, or an error of MPI's, the same at all
 * ranks, after calling comm's error handler; MPI_Error_string has the sentence. What could not be written stays in memory.
 */
int ummpi_sync_all(MPI_Comm comm, void *addr);

/* ummap_open of ummap.h, and ummpi_sync_all will know which handle of the driver mpiio is behind the mapping. */
int ummpi_open(const char *uri, size_t size, off_t offset, int prot, const struct ummap_attr *attr, void **addr);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
