/* SPDX-License-Identifier: BSD-3-Clause */
/* MPICH's symbols for the Fortran entry points of fortran.c. mpif.h has its own attributes, too. */
#include "pmpi/fortran.h"
#include "pmpi/other.h"

#pragma GCC visibility push(default)
void mpi_error_string_f08_(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error,
			   size_t room);
void mpi_win_get_attr_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
		       MPI_Fint *error);
void mpi_win_get_attr_f08_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
			   MPI_Fint *error) __attribute__((alias("mpi_win_get_attr_")));
#pragma GCC visibility pop

const char own_mpi[] = "MPICH";
const char other_mpi[] = "Open MPI";
const char other_library[] = "libopen-pal.so";
const char other_remedy[] = "libummap-mpi-openmpi.so";

const MPI_Fint fortran_flavor = MPI_WIN_CREATE_FLAVOR + 1;
const char fortran_get_attr[] = "mpi_win_get_attr_";

void mpi_error_string_f08_(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error,
			   size_t room)
{
	fortran_error_string(code, string, len, error, room);
}

void mpi_win_get_attr_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
		       MPI_Fint *error)
{
	fortran_win_get_attr(win, key, value, found, error);
}
