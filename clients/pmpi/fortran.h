/* SPDX-License-Identifier: BSD-3-Clause */
/* Fortran's entry points that are written by hand, and helpers of those that shims.awk makes. */
#ifndef FORTRAN_H
#define FORTRAN_H

#include <mpi.h>
#include <stddef.h>

/* The bodies of calls whose symbols are in openmpi.c and mpich.c. */
void fortran_error_string(const MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error,
			  size_t room);
void fortran_win_get_attr(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
			  MPI_Fint *error);

/* Copies a Fortran string to a C string, without the blanks around it. NULL: no memory. */
char *fortran_string(const char *text, size_t len);

/* ---- Defined in openmpi.c and mpich.c ---- */

extern const MPI_Fint fortran_flavor; /* MPI_WIN_CREATE_FLAVOR in Fortran */
extern const char fortran_get_attr[]; /* symbol of MPI's own MPI_Win_get_attr for Fortran */

/* Converts the address of a buffer, which may be that of a Fortran constant, to C's address. */
void *fortran_buffer(void *buffer);

#endif
