/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs that measure files of MPI-IO's with and without a cache: both take turns, and what counts are medians. */
#ifndef FIELD_FILEPAIR_H
#define FIELD_FILEPAIR_H

#include "kit/data.h"
#include "job.h"

#define FILEPAIR_RUNS 21
#define FILEPAIR_STEPS 8

struct filepair {
	const char *file, *cache;     /* --file, --cache */
	size_t size, block;           /* --size, --block */
	unsigned runs, count, work;   /* --runs, --count, --work */
	unsigned seed;
};

/* Reads the options; `what`: a line on the program. Begins MPI. */
void filepair_begin(struct filepair *p, int argc, char **argv, const char *what);
/* All ranks open the file, which is there. */
MPI_File filepair_open(const struct filepair *p, bool cached);
/* Runs `run` with and without a cache in turns. It puts seconds, or microseconds a call, of all ranks into steps, whose names are
 * printed with the medians of both. Ends MPI. */
void filepair_compare(const struct filepair *p, const char *const *names,
		      void (*run)(const struct filepair *p, bool cached, double *steps));

#endif
