/* SPDX-License-Identifier: BSD-3-Clause */
/* The common parts of programs with MPI: start and end, memory limits for all ranks, and times and
 * sums over all ranks. */
#ifndef FIELD_JOB_H
#define FIELD_JOB_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

struct job {
	int rank, ranks;
};

extern struct job job;

/* Begins MPI, and limits the library to --budget. */
void job_begin(const struct alloc *a);
/* Limits all ranks together to --budget by a memory cgroup. Memory that they touch for the first
 * time from then on counts, and so does the page cache. Touch buffers before, because the limit of
 * the library does not count them either. */
void job_limit(const struct alloc *a);
/* Lets the machine provide the memory that a rank touches in a measurement: `bytes`, or as much as
 * --budget allows. */
void job_warm(const struct alloc *a, size_t bytes);
/* Ends MPI and the program successfully. A rank that ends otherwise ends all ranks. */
void job_end(void);

/* Selects transports that reach windows with faults in user space, unless the user has selected
 * some; must be called before job_begin. */
void job_reach_windows(void);
/* Makes a window over memory of any kind, in bytes, locked for all ranks. It must be freed before
 * the memory. */
MPI_Win job_window(struct memory *m);
void job_window_free(struct memory *m, MPI_Win win);

/* Ends the program if a call of MPI has failed. name: the call or the file, for the message. */
void job_check(int code, const char *name);

/* Return the greatest value or the sum of all ranks, at all ranks. */
double job_max(double value);
double job_sum(double value);
uint64_t job_total(uint64_t value);
/* Waits for all ranks, and returns the time. */
uint64_t job_start(void);
/* Returns the seconds of the slowest rank since then, at all ranks. */
double job_seconds(uint64_t start);
/* Returns the name of a rank's file: "PREFIX.RANK". */
const char *job_path(const char *prefix, int rank);

#endif
