/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Epochs of MPICH's module mpi_f08, which takes them past the layer's calls in C (see fortran_mpich.c). The last argument of
 * all is the error, which may be left out.
 */
#include <mpi.h>

#include <stddef.h>

void mpi_win_lock_f08_(MPI_Fint *type, MPI_Fint *rank, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error);
void mpi_win_lock_all_f08_(MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error);
void mpi_win_unlock_f08_(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error);
void mpi_win_unlock_all_f08_(MPI_Fint *win, MPI_Fint *error);
void mpi_win_flush_f08_(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error);
void mpi_win_flush_all_f08_(MPI_Fint *win, MPI_Fint *error);
void mpi_win_flush_local_f08_(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error);
void mpi_win_flush_local_all_f08_(MPI_Fint *win, MPI_Fint *error);
void mpi_win_fence_f08_(MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error);
void mpi_win_start_f08_(MPI_Fint *group, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error);

static void put_error(int code, MPI_Fint *error)
{
	if (error)
		*error = code;
}

void mpi_win_lock_f08_(MPI_Fint *type, MPI_Fint *rank, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_lock(*type, *rank, *assert, MPI_Win_f2c(*win)), error);
}

void mpi_win_lock_all_f08_(MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_lock_all(*assert, MPI_Win_f2c(*win)), error);
}

void mpi_win_unlock_f08_(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_unlock(*rank, MPI_Win_f2c(*win)), error);
}

void mpi_win_unlock_all_f08_(MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_unlock_all(MPI_Win_f2c(*win)), error);
}

void mpi_win_flush_f08_(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_flush(*rank, MPI_Win_f2c(*win)), error);
}

void mpi_win_flush_all_f08_(MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_flush_all(MPI_Win_f2c(*win)), error);
}

void mpi_win_flush_local_f08_(MPI_Fint *rank, MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_flush_local(*rank, MPI_Win_f2c(*win)), error);
}

void mpi_win_flush_local_all_f08_(MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_flush_local_all(MPI_Win_f2c(*win)), error);
}

void mpi_win_fence_f08_(MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_fence(*assert, MPI_Win_f2c(*win)), error);
}

void mpi_win_start_f08_(MPI_Fint *group, MPI_Fint *assert, MPI_Fint *win, MPI_Fint *error)
{
	put_error(MPI_Win_start(MPI_Group_f2c(*group), *assert, MPI_Win_f2c(*win)), error);
}
