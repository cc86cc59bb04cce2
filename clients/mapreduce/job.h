/* SPDX-License-Identifier: BSD-3-Clause */
/* A job at one rank, and its phases. */
#ifndef MAPREDUCE_JOB_H
#define MAPREDUCE_JOB_H

#include "mapreduce/input.h"
#include "mapreduce/status.h"
#include "mapreduce/stream.h"
#include "mapreduce/table.h"
#include "mapreduce/timeline.h"

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
	struct timeline timeline;
	char *checkpoint;        /* MapReduce-2S's file; NULL: none */
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

/* One phase, which the timeline gets to know. */
int run_phase(ummr_job *job, int which, int (*phase)(ummr_job *job));

/* Maps a task into the table, and from there, when that is full, into the buckets. */
int map_input(ummr_job *job, int64_t task);
/* All that is left in the table goes there. */
int map_empty_table(ummr_job *job);
/* Two sorted runs become one. */
int merge_runs(ummr_job *job, struct reader *a, struct reader *b, struct stream *to);

/* Each goes on with what the others have finished, and returns early, with 0, if the job is stopped. */
int map_phase(ummr_job *job);
int reduce_phase(ummr_job *job);
int combine_phase(ummr_job *job);

#endif
