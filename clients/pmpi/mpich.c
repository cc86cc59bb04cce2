/* SPDX-License-Identifier: BSD-3-Clause */
/* MPICH's names for what is written by hand. Attributes are not those of C in mpif.h either. */
#include "pmpi/fortran.h"
#include "pmpi/other.h"

#pragma GCC visibility push(default)
void mpi_error_string_f08_(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, size_t room);
void mpi_file_open_f08_(MPI_Fint *comm, char *name, MPI_Fint *amode, MPI_Fint *info, MPI_Fint *file, MPI_Fint *error, size_t len);
void mpi_file_delete_f08_(char *name, MPI_Fint *info, MPI_Fint *error, size_t len);
void mpi_file_set_view_f08_(MPI_Fint *file, MPI_Offset *disp, MPI_Fint *etype, MPI_Fint *filetype, char *datarep, MPI_Fint *info,
			    MPI_Fint *error, size_t len);
void mpi_win_get_attr_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error);
void mpi_win_get_attr_f08_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error)
	__attribute__((alias("mpi_win_get_attr_")));
#pragma GCC visibility pop

const char own_mpi[] = "MPICH";
const char other_mpi[] = "Open MPI";
const char other_library[] = "libopen-pal.so";
const char other_remedy[] = "libummap-mpi-openmpi.so";

const MPI_Fint fortran_flavor = MPI_WIN_CREATE_FLAVOR + 1;
const char fortran_get_attr[] = "mpi_win_get_attr_";

void mpi_error_string_f08_(MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, size_t room)
{
	fortran_error_string(code, string, len, error, room);
}

void mpi_file_open_f08_(MPI_Fint *comm, char *name, MPI_Fint *amode, MPI_Fint *info, MPI_Fint *file, MPI_Fint *error, size_t len)
{
	fortran_file_open(comm, name, amode, info, file, error, len);
}

void mpi_file_delete_f08_(char *name, MPI_Fint *info, MPI_Fint *error, size_t len)
{
	fortran_file_delete(name, info, error, len);
}

void mpi_file_set_view_f08_(MPI_Fint *file, MPI_Offset *disp, MPI_Fint *etype, MPI_Fint *filetype, char *datarep, MPI_Fint *info,
			    MPI_Fint *error, size_t len)
{
	fortran_file_set_view(file, disp, etype, filetype, datarep, info, error, len);
}

void mpi_win_get_attr_(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error)
{
	fortran_win_get_attr(win, key, value, found, error);
}
