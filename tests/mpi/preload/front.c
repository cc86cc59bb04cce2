/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * front - counts calls before it passes them to the library by dlsym(3). It must see all calls of
 * the program.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

static int begun, allocated, puts_seen;

#define NEXT(call) ((__typeof__(&call))(uintptr_t)dlsym(RTLD_NEXT, #call))

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	begun++;
	return NEXT(MPI_Init_thread)(argc, argv, required, provided);
}

int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
		     MPI_Win *win)
{
	allocated++;
	return NEXT(MPI_Win_allocate)(size, unit, info, comm, base, win);
}

int MPI_Put(const void *from, int n, MPI_Datatype type, int rank, MPI_Aint disp, int target_n,
	    MPI_Datatype target_type, MPI_Win win)
{
	puts_seen++;
	return NEXT(MPI_Put)(from, n, type, rank, disp, target_n, target_type, win);
}

int MPI_Finalize(void)
{
	printf("front: %d begun, %d allocated, %d put\n", begun, allocated, puts_seen);
	fflush(stdout);
	return NEXT(MPI_Finalize)();
}
