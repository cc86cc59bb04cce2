/* SPDX-License-Identifier: BSD-3-Clause */
/* For an MPI that has the calls whose names end in _c: displacement units of any size, and those calls themselves. */
#include "window/shared.h"
#include "window/window.h"

int window_create(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	return PMPI_Win_create_c(base, size, unit, info, comm, win);
}

int window_allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	return PMPI_Win_allocate_c(size, unit, info, comm, base, win);
}

int window_allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	return PMPI_Win_allocate_shared_c(size, unit, info, comm, base, win);
}

int MPI_Win_create_c(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	return create(base, size, unit, info, comm, win);
}

int MPI_Win_allocate_c(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	return allocate(size, unit, info, comm, base, win);
}

int MPI_Win_allocate_shared_c(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	return allocate_shared(size, unit, info, comm, base, win);
}

int MPI_Win_shared_query_c(MPI_Win win, int rank, MPI_Aint *size, MPI_Aint *unit, void *base)
{
	return shared_query(win, rank, size, unit, base) ? MPI_SUCCESS :
							   PMPI_Win_shared_query_c(win, rank, size, unit, base);
}
