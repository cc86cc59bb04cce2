/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI-IO from and to windows, for Fortran. */
#ifndef FILEIO_H
#define FILEIO_H

#include <mpi.h>
#include <stdbool.h>

/* Whether the buffer has to be held in memory while MPI-IO transfers it. */
bool fileio_holds(const void *buf, int count, MPI_Datatype type);
/* A split transfer of the file has ended. */
void fileio_split_ended(MPI_File file);

#endif
