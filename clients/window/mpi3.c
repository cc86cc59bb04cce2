/* SPDX-License-Identifier: BSD-3-Clause */
/* For an MPI without the calls whose names end in _c: displacement units are ints. */
#include "window/window.h"

int window_create(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	return PMPI_Win_create(base, size, (int)unit, info, comm, win);
}

int window_allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	return PMPI_Win_allocate(size, (int)unit, info, comm, base, win);
}

int window_allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	return PMPI_Win_allocate_shared(size, (int)unit, info, comm, base, win);
}
