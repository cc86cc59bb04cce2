/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prk-transpose - the Transpose kernel of the Parallel Research Kernels: B += transpose of A, A +=
 * 1, for square matrices of doubles, of which each rank has a block of columns. Blocks are
 * exchanged in as many phases as there are ranks, and transposed in tiles. Only A and B are in the
 * memory under test; messages use buffers.
 */
#include <math.h>

#include "kit/common.h"
#include "prk.h"

static const char help[] =
"usage: mpirun prk-transpose [OPTION ...] ITERATIONS ORDER\n"
"Adds the transpose of a matrix of ORDER x ORDER doubles to another one. ORDER must be a multiple\n"
"of the number of ranks.\n"
"  --alloc KIND     memory of both matrices: %s (memory)\n"
"  --dir DIR        for scratch files without names, two for each rank (.)\n"
"  --sync N         both matrices are made durable after every N iterations\n"
"  --tile N         rows and columns of a tile (32)\n"
"  --json FILE      add a line to FILE\n"
ALLOC_KNOBS_HELP ALLOC_PART_HELP
"  --help\n";

/* Columns [first, first + block) of both, one after the other. */
struct part {
	size_t order, block, first, tile;
	double *a, *b;
	double *sent, *got;
};

static size_t first_column(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void start_values(struct part *p)
{
	for (size_t j = 0; j < p->block; j++)
		for (size_t i = 0; i < p->order; i++) {
			p->a[j * p->order + i] = (double)(p->order * (p->first + j) + i);
			p->b[j * p->order + i] = 0;
		}
}

/*
 * Rows [from_row, from_row + block) of A, transposed, go to the columns of `to`, which are
 * `to_stride` doubles apart, or are added there. They then grow by 1.
 */
static void transpose_block(struct part *p, size_t from_row, double *to, size_t to_stride, bool add)
{
	size_t i, j, it, jt;

	for (it = 0; it < p->block; it += p->tile)
		for (jt = 0; jt < p->block; jt += p->tile)
			for (i = it; i < first_column(p->block, it + p->tile); i++)
				for (j = jt; j < first_column(p->block, jt + p->tile); j++) {
					double *from = &p->a[j * p->order + from_row + i];

					to[i * to_stride + j] =
						(add ? to[i * to_stride + j] : 0) + *from;
					*from += 1.0;
				}
}

static void add_block(struct part *p, size_t row)
{
	for (size_t j = 0; j < p->block; j++)
		for (size_t i = 0; i < p->block; i++)
			p->b[j * p->order + row + i] += p->got[j * p->block + i];
}

/* In phase n everybody sends to the rank n before, and receives from the one n after. */
static void run_iteration(struct part *p)
{
	int phase, to, from, len = (int)(p->block * p->block);

	transpose_block(p, p->first, p->b + p->first, p->order, true);
	for (phase = 1; phase < job.ranks; phase++) {
		to = (job.rank - phase + job.ranks) % job.ranks;
		from = (job.rank + phase) % job.ranks;
		transpose_block(p, (size_t)to * p->block, p->sent, p->block, false);
		MPI_Sendrecv(p->sent, len, MPI_DOUBLE, to, phase, p->got, len, MPI_DOUBLE, from,
			     phase, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		add_block(p, (size_t)from * p->block);
	}
}

static void check_errors(const struct part *p, unsigned iterations)
{
	double times = iterations + 1.0, added = times * iterations / 2, error = 0;

	for (size_t j = 0; j < p->block; j++)
		for (size_t i = 0; i < p->order; i++)
			error += fabs(p->b[j * p->order + i] -
				      ((double)(p->order * i + p->first + j) * times + added));
	error = job_sum(error);
	if (!(error < PRK_EPSILON))
		die("ERROR: the sum of errors is %g, more than %g", error, PRK_EPSILON);
}

int main(int argc, char **argv)
{
	struct prk k = { .name = "prk-transpose" };
	struct part p;

	prk_begin(&k, argc, argv, help);
	if (k.order % (unsigned)job.ranks)
		die("ORDER: %u is no multiple of %d ranks", k.order, job.ranks);
	p.order = k.order;
	p.block = p.order / (size_t)job.ranks;
	p.first = p.block * (size_t)job.rank;
	p.tile = k.tile;
	if (p.block * p.block > INT32_MAX)
		die("ORDER: blocks of %zu are too large for a message; take more ranks", p.block);
	p.sent = (double *)huge_memory(p.block * p.block * sizeof(double));
	p.got = (double *)huge_memory(p.block * p.block * sizeof(double));
	prk_arrays(&k, p.order * p.block * sizeof(double), p.order * p.block * sizeof(double));
	p.a = (double *)k.array[0]->base;
	p.b = (double *)k.array[1]->base;
	start_values(&p);
	for (unsigned i = 0; i <= k.iterations; i++) {
		run_iteration(&p);
		prk_iterated(&k, i);
	}
	check_errors(&p, k.iterations);
	/* Each element is read once and written once. */
	prk_end(&k, 2.0 * sizeof(double) * (double)p.order * (double)p.order, "MB/s");
}
