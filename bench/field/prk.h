/* SPDX-License-Identifier: BSD-3-Clause */
/* The common parts of the two Parallel Research Kernels: options, checkpoints and output. */
#ifndef FIELD_PRK_H
#define FIELD_PRK_H

#include "job.h"
#include "report.h"

#define PRK_EPSILON 1e-8

struct prk {
	const char *name;
	struct alloc alloc;
	const char *dir, *json;
	unsigned iterations, order, tile;
	unsigned sync;            /* iterations between two checkpoints; 0: no checkpoints */
	struct memory *array[2];  /* memory that checkpoints make durable */
	double seconds, synced_s; /* time of all iterations, and of checkpoints in them */
};

/* Parses the command line, and begins MPI. */
void prk_begin(struct prk *k, int argc, char **argv, const char *help);
/* Makes the two arrays. Other memory must have been touched before, so that the limit does not
 * count it. */
void prk_arrays(struct prk *k, size_t first, size_t second);
/* Must be called at the end of each iteration. The clock starts after iteration 0. */
void prk_iterated(struct prk *k, unsigned iteration);
/* Prints that the result is right, and the rate, and ends MPI and the program. work: work of an
 * iteration, in `unit`. */
_Noreturn void prk_end(struct prk *k, double work, const char *unit);

#endif
