/* SPDX-License-Identifier: BSD-3-Clause */
/* Kinds of memory with MPI: that of a window, as MPI allocates it. And windows over all kinds. */
#include "job.h"

#include "../common.h"

static void window_open(struct memory *m)
{
	MPI_Win *win = malloc(sizeof(*win));

	MPI_Win_allocate((MPI_Aint)m->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &m->base, win);
	memset(m->base, 0, m->size);
	MPI_Barrier(MPI_COMM_WORLD);
	m->own = win;
}

static void window_close(struct memory *m)
{
	MPI_Win_free(m->own);
	free(m->own);
}

static const struct alloc_kind window = {
	"mpi-window", false, false, window_open, NULL, NULL, NULL, window_close,
};

const struct alloc_kind *const alloc_mpi_kinds[] = { &window, NULL };

MPI_Win job_window(struct memory *m)
{
	MPI_Win win;

	if (m->alloc->kind == &window)
		return *(MPI_Win *)m->own;
	MPI_Win_create(m->base, (MPI_Aint)m->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	return win;
}

void job_window_free(struct memory *m, MPI_Win win)
{
	if (m->alloc->kind != &window)
		MPI_Win_free(&win);
}
