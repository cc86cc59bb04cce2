/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * behind - counts calls between the library and MPI, as tools that call PMPI do. It must see the
 * calls that the library passes to MPI.
 */
#include <mpi.h>
#include <stdio.h>

static int begun, allocated, created, puts_seen;

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	begun++;
	return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
		     MPI_Win *win)
{
	allocated++;
	return PMPI_Win_allocate(size, unit, info, comm, base, win);
}

int MPI_Win_create(void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	created++;
	return PMPI_Win_create(base, size, unit, info, comm, win);
}

int MPI_Put(const void *from, int n, MPI_Datatype type, int rank, MPI_Aint disp, int target_n,
	    MPI_Datatype target_type, MPI_Win win)
{
	puts_seen++;
	return PMPI_Put(from, n, type, rank, disp, target_n, target_type, win);
}

int MPI_Finalize(void)
{
	printf("behind: %d begun, %d allocated, %d created, %d put\n", begun, allocated, created,
	       puts_seen);
	fflush(stdout);
	return PMPI_Finalize();
}
