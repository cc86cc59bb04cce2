/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stack - puts to a window in storage, which the library copies, and to one in memory, which MPI
 * copies. Libraries that stack.sh preloads count the calls.
 */
#include "common.h"

/* With MPICH 4, parts of a window in memory must begin at a multiple of 16 bytes. */
#define PUTS 12

static void put_all(MPI_Info info)
{
	int *base, own;
	MPI_Win win;

	check(MPI_Win_allocate(PUTS * sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &base,
			       &win) == MPI_SUCCESS);
	check(MPI_Win_lock_all(MPI_MODE_NOCHECK, win) == MPI_SUCCESS);
	for (int i = 0; i < PUTS; i++) {
		own = rank * PUTS + i + 1;
		check(MPI_Put(&own, 1, MPI_INT, rank, i, 1, MPI_INT, win) == MPI_SUCCESS);
		check(MPI_Win_flush(rank, win) == MPI_SUCCESS && base[i] == own);
	}
	check(MPI_Win_unlock_all(win) == MPI_SUCCESS && MPI_Win_free(&win) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	MPI_Info info;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	info = storage_hints("part.%r", NULL);
	put_all(info);
	put_all(MPI_INFO_NULL);
	MPI_Info_free(&info);
	return MPI_Finalize();
}
