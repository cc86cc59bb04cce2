/* SPDX-License-Identifier: BSD-3-Clause */
/* Fortran's ways into the library that are not made from pmpi/calls, and what those are made with. */
#ifndef FORTRAN_H
#define FORTRAN_H

#include <mpi.h>
#include <stddef.h>

/* The names of these calls are in openmpi.c and mpich.c. */
void fortran_error_string(const MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, size_t room);
void fortran_file_open(const MPI_Fint *comm, const char *name, const MPI_Fint *amode, const MPI_Fint *info, MPI_Fint *file,
		       MPI_Fint *error, size_t len);
void fortran_file_delete(const char *name, const MPI_Fint *info, MPI_Fint *error, size_t len);
void fortran_file_set_view(const MPI_Fint *file, const MPI_Offset *disp, const MPI_Fint *etype, const MPI_Fint *filetype,
			   const char *datarep, const MPI_Fint *info, MPI_Fint *error, size_t len);
void fortran_win_get_attr(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error);

/* ---- Of each MPI its own ---- */

/* What Fortran calls MPI_WIN_CREATE_FLAVOR, and the name of MPI's own call that has all attributes. */
extern const MPI_Fint fortran_flavor;
extern const char fortran_get_attr[];

/* C's address for that of a buffer, which may be one of Fortran's constants. */
void *fortran_buffer(void *buffer);

#endif
