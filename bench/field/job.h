/* SPDX-License-Identifier: BSD-3-Clause */
/* What the programs with MPI share: beginning and ending, memory limits for all ranks, times and sums over them. */
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

/* Begins MPI and holds the library to --budget. */
void job_begin(const struct alloc *a);
/* Holds all ranks together to it, by a memory cgroup: what they touch for the first time from here on counts, and so
 * does the page cache. Touch buffers before, for the library does not count them either. */
void job_limit(const struct alloc *a);
/* Before a time is taken: has the machine provide what a rank will touch, `bytes` or as much as --budget allows. */
void job_warm(const struct alloc *a, size_t bytes);
/* Ends both. Only for success: a rank that ends the program without this ends the others too. */
void job_end(void);

/* Before job_begin: transports that also reach windows which fault in user space, where the user has not chosen. */
void job_reach_windows(void);
/* A window over memory of any kind, all of it, in bytes, open for everybody; it ends before the memory. */
MPI_Win job_window(struct memory *m);
void job_window_free(struct memory *m, MPI_Win win);

/* Ends the program where a call of MPI's has failed, with what MPI says; `what`: of which call or file. */
void job_check(int code, const char *what);

/* Of all ranks, for all: the greatest, the sum. */
double job_max(double value);
double job_sum(double value);
uint64_t job_total(uint64_t value);
/* All ranks begin here together. Returns the time. */
uint64_t job_start(void);
/* The time that the slowest rank took since then, in seconds, for all. */
double job_seconds(uint64_t start);
/* The file of this rank: "PREFIX.RANK". */
const char *job_path(const char *prefix, int rank);

#endif
