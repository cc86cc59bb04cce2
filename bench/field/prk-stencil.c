/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prk-stencil - the Stencil kernel of the Parallel Research Kernels: a star of radius 2 over a
 * square grid of doubles, which a nearly square grid of ranks shares. Each iteration exchanges
 * halos by messages, adds the stencil of `in` to `out`, and adds 1 to `in`. Only `in` and `out` are
 * in the memory under test; messages use buffers.
 */
#include <math.h>

#include "kit/common.h"
#include "prk.h"

enum { RADIUS = 2 };

/* The stencil of x + y is 2 everywhere. */
#define COEFX 1.0
#define COEFY 1.0

static const char help[] =
"usage: mpirun prk-stencil [OPTION ...] ITERATIONS ORDER\n"
"Star stencil of radius 2 on a grid of ORDER x ORDER doubles.\n"
"  --alloc KIND     memory of both grids: %s (memory)\n"
"  --dir DIR        for scratch files without names, two for each rank (.)\n"
"  --sync N         both grids are made durable after every N iterations\n"
"  --json FILE      add a line to FILE\n"
ALLOC_KNOBS_HELP ALLOC_PART_HELP
"  --help\n";

/* The part of this rank: columns [x0, x0 + w) and rows [y0, y0 + h). `in` has a frame of RADIUS. */
struct part {
	long n, x0, y0, w, h, stride;
	int left, right, up, down;        /* ranks, or MPI_PROC_NULL */
	double *in, *out;
	double *buf[8];                   /* sent and received: left, right, up, down */
};

enum { SEND_LEFT, SEND_RIGHT, SEND_UP, SEND_DOWN, GOT_LEFT, GOT_RIGHT, GOT_UP, GOT_DOWN };

static void distribute_columns(long n, int parts, int index, long *start, long *len)
{
	long rest = n % parts;

	*len = n / parts + (index < rest);
	*start = n / parts * index + (index < rest ? index : rest);
}

static void split_ranks(struct part *p, long n)
{
	int px, py, x, y;

	/* Ranks have whole rows if possible: the edges of columns are spread over all memory. */
	for (px = (int)sqrt(job.ranks); job.ranks % px; px--)
		;
	py = job.ranks / px;
	x = job.rank % px;
	y = job.rank / px;
	p->n = n;
	distribute_columns(n, px, x, &p->x0, &p->w);
	distribute_columns(n, py, y, &p->y0, &p->h);
	if (p->w <= RADIUS || p->h <= RADIUS)
		die("ORDER: %ld is too small for %d ranks", n, job.ranks);
	p->stride = p->w + 2 * RADIUS;
	p->left = x > 0 ? job.rank - 1 : MPI_PROC_NULL;
	p->right = x + 1 < px ? job.rank + 1 : MPI_PROC_NULL;
	p->up = y > 0 ? job.rank - px : MPI_PROC_NULL;
	p->down = y + 1 < py ? job.rank + px : MPI_PROC_NULL;
	for (int i = 0; i < 8; i++)
		p->buf[i] = calloc((size_t)(RADIUS * (p->w > p->h ? p->w : p->h)), sizeof(double));
}

/* Row y of `in`, from its first column that is no frame; -RADIUS <= y < h + RADIUS. */
static double *row_address(const struct part *p, long y)
{
	return p->in + (y + RADIUS) * p->stride + RADIUS;
}

static void start_values(struct part *p)
{
	for (long y = 0; y < p->h; y++)
		for (long x = 0; x < p->w; x++) {
			row_address(p, y)[x] =
				COEFX * (double)(p->x0 + x) + COEFY * (double)(p->y0 + y);
			p->out[y * p->w + x] = 0;
		}
}

/* Copies RADIUS columns from x on, or to there, if there is a peer to have them. */
static void column_range(const struct part *p, double *buf, long x, bool out, int peer)
{
	if (peer == MPI_PROC_NULL)
		return;
	for (long y = 0; y < p->h; y++, buf += RADIUS) {
		double *at = row_address(p, y) + x;

		memcpy(out ? buf : at, out ? at : buf, RADIUS * sizeof(double));
	}
}

static void row_range(const struct part *p, double *buf, long y, bool out, int peer)
{
	if (peer == MPI_PROC_NULL)
		return;
	for (long i = 0; i < RADIUS; i++, buf += p->w) {
		double *at = row_address(p, y + i);

		memcpy(out ? buf : at, out ? at : buf, (size_t)p->w * sizeof(double));
	}
}

static void exchange(struct part *p)
{
	const int peers[4] = { p->left, p->right, p->up, p->down };
	const int lens[4] = { (int)p->h * RADIUS, (int)p->h * RADIUS, (int)p->w * RADIUS,
			      (int)p->w * RADIUS };
	MPI_Request requests[8];
	MPI_Status statuses[8];

	column_range(p, p->buf[SEND_LEFT], 0, true, p->left);
	column_range(p, p->buf[SEND_RIGHT], p->w - RADIUS, true, p->right);
	row_range(p, p->buf[SEND_UP], 0, true, p->up);
	row_range(p, p->buf[SEND_DOWN], p->h - RADIUS, true, p->down);
	/* Data sent to the left arrives from the right: the tag is the side of arrival. */
	for (int i = 0; i < 4; i++) {
		MPI_Irecv(p->buf[GOT_LEFT + i], lens[i], MPI_DOUBLE, peers[i], i, MPI_COMM_WORLD,
			  &requests[i]);
		MPI_Isend(p->buf[i], lens[i], MPI_DOUBLE, peers[i], i ^ 1, MPI_COMM_WORLD,
			  &requests[4 + i]);
	}
	MPI_Waitall(8, requests, statuses);
	column_range(p, p->buf[GOT_LEFT], -RADIUS, false, p->left);
	column_range(p, p->buf[GOT_RIGHT], p->w, false, p->right);
	row_range(p, p->buf[GOT_UP], -RADIUS, false, p->up);
	row_range(p, p->buf[GOT_DOWN], p->h, false, p->down);
}

static long clamp(long value, long least, long most)
{
	return value < least ? least : value > most ? most : value;
}

/* Points closer than RADIUS to the edge of the whole grid have no stencil. */
static void apply_stencil(struct part *p)
{
	const double w1 = 1.0 / (2 * 1 * RADIUS), w2 = 1.0 / (2 * 2 * RADIUS);
	const long x_from = clamp(RADIUS - p->x0, 0, p->w),
		   x_to = clamp(p->n - RADIUS - p->x0, 0, p->w);
	const long y_from = clamp(RADIUS - p->y0, 0, p->h),
		   y_to = clamp(p->n - RADIUS - p->y0, 0, p->h);
	const long s = p->stride;

	for (long y = y_from; y < y_to; y++) {
		const double *restrict in = row_address(p, y);
		double *restrict out = p->out + y * p->w;

		for (long x = x_from; x < x_to; x++)
			out[x] += w1 * (in[x + 1] - in[x - 1]) + w2 * (in[x + 2] - in[x - 2]) +
				  w1 * (in[x + s] - in[x - s]) +
				  w2 * (in[x + 2 * s] - in[x - 2 * s]);
	}
}

static void add_one(struct part *p)
{
	for (long y = 0; y < p->h; y++) {
		double *in = row_address(p, y);

		for (long x = 0; x < p->w; x++)
			in[x] += 1.0;
	}
}

static double point_count(const struct part *p)
{
	return (double)(p->n - 2 * RADIUS) * (double)(p->n - 2 * RADIUS);
}

/* The mean of |out| against what it must be; points without a stencil are 0. */
static void check_norm(const struct part *p, unsigned iterations)
{
	double want = (iterations + 1.0) * (COEFX + COEFY), norm = 0;

	for (long i = 0; i < p->w * p->h; i++)
		norm += fabs(p->out[i]);
	norm = job_sum(norm) / point_count(p);
	if (!(fabs(norm - want) <= PRK_EPSILON))
		die("ERROR: the L1 norm is %f: wanted %f", norm, want);
}

int main(int argc, char **argv)
{
	struct prk k = { .name = "prk-stencil" };
	struct part p;
	unsigned i;

	prk_begin(&k, argc, argv, help);
	split_ranks(&p, k.order);
	prk_arrays(&k, (size_t)(p.stride * (p.h + 2 * RADIUS)) * sizeof(double),
		   (size_t)(p.w * p.h) * sizeof(double));
	p.in = (double *)k.array[0]->base;
	p.out = (double *)k.array[1]->base;
	start_values(&p);
	for (i = 0; i <= k.iterations; i++) {
		exchange(&p);
		apply_stencil(&p);
		add_one(&p);
		prk_iterated(&k, i);
	}
	check_norm(&p, k.iterations);
	for (i = 0; i < 8; i++)
		free(p.buf[i]);
	/* Each point has 4 * RADIUS + 1 multiplications and additions, and one more addition. */
	prk_end(&k, (2 * (4 * RADIUS + 1) + 1) * point_count(&p), "MFlops/s");
}
