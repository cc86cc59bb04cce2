/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * notes - a first MPI window in storage. Each even rank puts a number into the window of each odd
 * rank. The odd ranks also find the numbers of earlier runs, because their windows are files.
 * Without libummap-mpi, MPI ignores the hints: the windows are in memory, and the numbers are lost
 * when the program ends.
 *
 *	mpirun -n 4 notes /data/notes.%r
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void leave_notes(MPI_Win win, int rank, int ranks)
{
	int note = rank + (int)time(NULL);

	for (int to = 1; to < ranks; to += 2) {
		MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
		MPI_Put(&note, 1, MPI_INT, to, rank, 1, MPI_INT, win);
		MPI_Win_unlock(to, win);
	}
}

static void print_notes(const int *notes, int rank, int ranks, const char *when)
{
	for (int from = 0; from < ranks; from += 2)
		printf("rank %d, %s: rank %d left %d\n", rank, when, from, notes[from]);
}

int main(int argc, char **argv)
{
	int rank, ranks, *notes;
	MPI_Info info;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);

	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename",
		     argc > 1 ? argv[1] : "notes.%r"); /* %r: a file for each rank */
	MPI_Info_set(info, "storage_alloc_unlink", "false");
	MPI_Win_allocate(ranks * (MPI_Aint)sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &notes,
			 &win);
	MPI_Info_free(&info);

	if (rank % 2)
		print_notes(notes, rank, ranks, "before");
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank % 2 == 0)
		leave_notes(win, rank, ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank % 2)
		print_notes(notes, rank, ranks, "now");

	MPI_Win_free(&win); /* makes all changes durable */
	MPI_Finalize();
	return 0;
}
