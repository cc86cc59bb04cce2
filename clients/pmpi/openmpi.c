/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open MPI's symbols for the Fortran entry points of fortran.c, and its Fortran constants. The
 * module mpi_f08 calls ompi_NAME_f, except for attributes.
 */
#include "pmpi/fortran.h"
#include "pmpi/other.h"
#include "pmpi/pmpi.h"

#pragma GCC visibility push(default)
extern int mpi_fortran_bottom_, mpi_fortran_in_place_;

void ompi_error_string_f(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, int room);
void mpi_error_string_(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, int room)
	__attribute__((alias("ompi_error_string_f")));
void mpi_file_set_atomicity_f08_(MPI_Fint *file, MPI_Fint *flag, MPI_Fint *error);
void ompi_win_get_attr_f(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
			 MPI_Fint *error);
void mpi_win_get_attr_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
		       MPI_Fint *error) __attribute__((alias("ompi_win_get_attr_f")));
void mpi_win_get_attr_f08_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
			   MPI_Fint *error) __attribute__((alias("ompi_win_get_attr_f")));
#pragma GCC visibility pop

const char own_mpi[] = "Open MPI";
const char other_mpi[] = "MPICH";
const char other_library[] = "libmpich.so";
const char other_remedy[] = "libummap-mpi-mpich.so";

const MPI_Fint fortran_flavor = MPI_WIN_CREATE_FLAVOR;
const char fortran_get_attr[] = "ompi_win_get_attr_f";

void ompi_error_string_f(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, int room)
{
	fortran_error_string(code, string, len, error, (size_t)room);
}

/* The module does not call ompi_file_set_atomicity_f, because it passes the logical as an int. */
void mpi_file_set_atomicity_f08_(MPI_Fint *file, MPI_Fint *flag, MPI_Fint *error)
{
	int code = pmpi_first.File_set_atomicity(MPI_File_f2c(*file), *flag);

	if (error)
		*error = code;
}

void ompi_win_get_attr_f(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
			 MPI_Fint *error)
{
	fortran_win_get_attr(win, key, value, found, error);
}

void *fortran_buffer(void *buffer)
{
	if (buffer == &mpi_fortran_bottom_)
		return MPI_BOTTOM;
	return buffer == &mpi_fortran_in_place_ ? MPI_IN_PLACE : buffer;
}
