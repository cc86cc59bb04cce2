/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checkpoint - a computation that may be killed at any moment, and continues from its last
 * checkpoint. Each rank has a part of a ring of cells, and the number of finished steps, in a
 * window that is stored in a file. After each step, ummpi_sync_all makes a checkpoint of all ranks.
 * The next job with the same number of ranks begins at the newest checkpoint that all ranks have.
 *
 *	mpirun -n 4 checkpoint /data/ring.%r 1000
 *
 * The program must be linked with libummap-mpi, which has ummpi_sync_all. See "Checkpoints" in
 * ummap-mpi(7).
 */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <ummap-mpi.h>

#define CELLS 20000

/* The data of one checkpoint, which must be in one window. */
struct part {
	long step;                    /* finished steps; 0 in a new file */
	double cell[CELLS];
};

static void begin(struct part *p, int rank)
{
	for (int i = 0; i < CELLS; i++)
		p->cell[i] = (double)(rank * CELLS + i);
}

/* Makes one step: each cell becomes the mean of its neighbors. The first and the last cell have
 * neighbors at other ranks. */
static void advance(struct part *p, MPI_Win win, int rank, int ranks)
{
	MPI_Aint first = offsetof(struct part, cell),
		 last = first + (CELLS - 1) * (MPI_Aint)sizeof(double);
	double left, right, before;

	MPI_Win_fence(0, win);
	MPI_Get(&left, 1, MPI_DOUBLE, (rank + ranks - 1) % ranks, last, 1, MPI_DOUBLE, win);
	MPI_Get(&right, 1, MPI_DOUBLE, (rank + 1) % ranks, first, 1, MPI_DOUBLE, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < CELLS; i++) {
		before = p->cell[i];
		p->cell[i] = (left + (i < CELLS - 1 ? p->cell[i + 1] : right)) / 2;
		left = before;
	}
	p->step++;
}

static void print_sum(const struct part *p, int rank)
{
	double sum = 0, total;

	for (int i = 0; i < CELLS; i++)
		sum += p->cell[i] * (i % 7);
	MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("after step %ld: %.17g\n", p->step, total);
}

int main(int argc, char **argv)
{
	long steps = argc > 2 ? atol(argv[2]) : 100;
	struct part *p;
	int rank, ranks;
	MPI_Info info;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);

	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename",
		     argc > 1 ? argv[1] : "ring.%r"); /* %r: a file for each rank */
	MPI_Info_set(info, "storage_alloc_consistent", "true");
	MPI_Win_allocate(sizeof(*p), 1, info, MPI_COMM_WORLD, &p, &win);
	MPI_Info_free(&info);

	if (p->step > 0)
		printf("rank %d continues after step %ld\n", rank, p->step);
	else
		begin(p, rank);
	fflush(stdout);
	while (p->step < steps) {
		advance(p, win, rank, ranks);
		ummpi_sync_all(MPI_COMM_WORLD, p);
		if (rank == 0) {
			printf("step %ld is durable\n", p->step);
			fflush(stdout);
		}
	}
	print_sum(p, rank);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
