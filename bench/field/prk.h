/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two Parallel Research Kernels share: their command line, checkpoints, and what they print. */
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
	unsigned sync;            /* checkpoint after so many iterations; 0: never */
	struct memory *array[2];  /* what a checkpoint is of */
	double seconds, synced_s; /* all timed iterations; of them in checkpoints */
};

/* Takes the command line and begins MPI. */
void prk_begin(struct prk *k, int argc, char **argv, const char *help);
/* The two arrays, of so many bytes; other memory has been touched before, if it is not to count against the budget. */
void prk_arrays(struct prk *k, size_t first, size_t second);
/* The clock starts after the first of iterations + 1: call it at the end of each, from 0 on. */
void prk_iterated(struct prk *k, unsigned iteration);
/* Says that the result was right, and the rate, `work` being that of one iteration in `unit`; ends MPI and program. */
_Noreturn void prk_end(struct prk *k, double work, const char *unit);

#endif
