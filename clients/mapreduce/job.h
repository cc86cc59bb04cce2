/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job at one rank: the data that several phases need. Each phase includes the headers of the
 * modules that it uses, and keeps its own data to itself.
 */
#ifndef MAPREDUCE_JOB_H
#define MAPREDUCE_JOB_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include <ummap-mapreduce.h>

/* The activity of a job, which tells the calls that are allowed. */
enum job_state {
	JOB_NEW,     /* the job has not run */
	JOB_MAPPING, /* a map function is running */
	JOB_RUNNING, /* ummr_run or ummr_write is running, but no map function */
	JOB_DONE,    /* the last run was complete */
	JOB_FAILED   /* a run has failed */
};

struct input;
struct mapper;
struct result;
struct status;
struct timeline;
struct work;

struct ummr_job {
	MPI_Comm comm;              /* the job's own communicator */
	int rank, ranks;            /* number of this rank, number of ranks */
	struct ummr_config config;  /* the configuration, with defaults in place of zeros */
	enum job_state state;       /* activity of the job */
	uint64_t complete_runs;     /* number of complete runs */
	struct input *input;        /* files and tasks */
	struct status *status;      /* the Status window */
	struct timeline *timeline;  /* events of the phases */
	struct work *work;          /* windows with pairs, and acknowledged work */
	struct result *result;      /* reader of the result */
	struct mapper *mapper;      /* data of Map while it runs, for ummr_emit */
	struct ummr_values *values; /* values of a key while reduce_all runs, for ummr_put */
};

static inline void report_progress(const ummr_job *job, int phase, uint64_t done, uint64_t all)
{
	struct ummr_progress p = { phase, done, all };

	if (job->config.progress)
		job->config.progress(&p, job->config.arg);
}

static inline bool is_descending(const ummr_job *job)
{
	return job->config.order == UMMR_ORDER_DESCENDING;
}

#endif
