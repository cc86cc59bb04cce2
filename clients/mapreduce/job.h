/* SPDX-License-Identifier: BSD-3-Clause */
/* A job at one rank, and its phases. */
#ifndef MAPREDUCE_JOB_H
#define MAPREDUCE_JOB_H

#include "mapreduce/input.h"
#include "mapreduce/status.h"
#include "mapreduce/stream.h"
#include "mapreduce/table.h"

#include <mpi.h>

#include <ummap-mapreduce.h>

enum state { STATE_NEW, STATE_MAPPING, STATE_RUNNING, STATE_DONE, STATE_FAILED };

struct ummr_job {
	MPI_Comm comm;           /* the job's own */
	int rank, ranks;
	struct ummr_config config;
	enum state state;
	struct input input;
	struct status status;
	struct space pairs;      /* the Key-Value window: streams by target rank */
	struct space runs;       /* the Combine window: one stream, the rank's sorted run */
	struct table table;      /* of Map, then of Reduce */
	struct stream *buckets;  /* by target rank */
	struct stream run;
	struct reader walk;      /* ummr_next's */
	uint32_t since_sync;     /* tasks */
	uint32_t passed;         /* pairs: see serve_sometimes */
	int emit_failed;         /* -1: a pair could not be kept, whether map says so or not */
};

/* For each pair: about every millisecond others have what they want of this rank's windows. */
static inline void serve_sometimes(ummr_job *job)
{
	if ((++job->passed & 0x7fff) == 0)
		status_serve(&job->status);
}

void report_progress(ummr_job *job, int phase, uint64_t done, uint64_t all);

/* Each goes on with what the others have finished, and returns early, with 0, if the job is stopped. */
int map_phase(ummr_job *job);
int reduce_phase(ummr_job *job);
int combine_phase(ummr_job *job);

#endif
