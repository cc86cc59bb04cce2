/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs that measure MPI-IO with and without the cache, in turns, and compare medians. */
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

/* Parses the options, and begins MPI. summary: a line that describes the program. */
void filepair_begin(struct filepair *p, int argc, char **argv, const char *summary);
/* Opens the existing file; collective. */
MPI_File filepair_open(const struct filepair *p, bool cached);
/* Calls `run` with and without the cache in turns, prints the medians of its steps under their
 * names, and ends MPI. `run` stores seconds, or microseconds for each call, of all ranks in
 * steps. */
void filepair_compare(const struct filepair *p, const char *const *names,
		      void (*run)(const struct filepair *p, bool cached, double *steps));

#endif
