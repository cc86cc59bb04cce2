/* SPDX-License-Identifier: BSD-3-Clause */
/* A job at one rank, and its phases. */
#ifndef MAPREDUCE_JOB_H
#define MAPREDUCE_JOB_H

#include "mapreduce/input.h"
#include "mapreduce/lock.h"
#include "mapreduce/source.h"
#include "mapreduce/state.h"
#include "mapreduce/status.h"
#include "mapreduce/stream.h"
#include "mapreduce/table.h"
#include "mapreduce/timeline.h"

#include <mpi.h>

#include <ummap-mapreduce.h>

enum job_state { STATE_NEW, STATE_MAPPING, STATE_RUNNING, STATE_DONE, STATE_FAILED };

/* MapReduce-2S: its checkpoints, and what it goes on with. */
struct checkpoint {
	char *pairs, *runs[2];   /* files, of which runs[] take turns; NULL: there is no storage */
	int64_t tasks;           /* whose pairs are in what was found; 0: there is none of the next run */
	bool reduced;            /* or only Combine is left of it */
};

/* Sorted streams, on their way to a run: the last ones have the lowest levels. */
struct sorted {
	struct stream *streams;
	unsigned *levels;
	unsigned count, room;
};

/* How often there are syncs: after so many tasks, or so that they take a small part of the time. */
struct pace {
	uint32_t tasks;          /* since the last one */
	double end;              /* of the last one: clock_seconds */
	double took;             /* how long the last one kept the rank */
};

struct ummr_job {
	MPI_Comm comm;           /* the job's own */
	int rank, ranks;
	struct ummr_config config;
	char *folder;            /* for storage; NULL: in memory */
	enum job_state state;
	struct input input;
	struct status status;
	struct space pairs;      /* the Key-Value window: streams by target rank */
	struct space runs;       /* the Combine window: one stream, the rank's sorted run */
	struct table table;      /* of Map, then of Reduce */
	struct stream *buckets;  /* by target rank */
	struct sorted sorted;
	struct stream run;
	struct reader walk;      /* ummr_next's */
	struct timeline timeline;
	struct lock lock;        /* of the folder */
	struct checkpoint checkpoint;
	uint64_t complete;       /* runs */
	bool found;              /* what is acknowledged is this job's */
	struct state acknowledged;
	bool resumed;            /* the next run has begun before, in another job */
	bool all_reduced;        /* and nothing is left of it but Combine */
	unsigned char *done;     /* a bit for each task that is in some rank's buckets when the run begins */
	int64_t *fresh;          /* tasks that this rank has mapped since it has marked its buckets */
	int64_t fresh_count, fresh_room;
	struct pace pace;        /* of syncs */
	bool unsynced;           /* tasks are acknowledged whose pairs may not be durable yet, and the record is to come */
	bool results_begun;      /* the run may be written */
	uint32_t passed;         /* pairs: see serve_sometimes */
	bool unwritten;          /* the last ummr_write has failed: what is in storage is all that there is of the result */
	int map_failed;          /* what it has returned for the task */
	int emit_failed;         /* -1: a pair could not be kept, whether map says so or not */
	char *group;             /* ummr_emit's: a value as a group */
	size_t group_room;
	struct ummr_values *putting; /* where reduce_all runs */
	int put_failed;          /* as emit_failed */
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

/* Maps a task, several times if its function fails, into the table, and from there, when that is full, into the buckets. */
int map_input(ummr_job *job, int64_t task);
/* All that is left in the table goes there. */
int map_empty_table(ummr_job *job);
/* What was begun: the rank's pairs are durable, and its tasks acknowledged, when this returns. */
int map_end_sync(ummr_job *job, int phase);

/* Each goes on with what the others have finished, and returns early, with 0, if the job is stopped. */
int map_phase(ummr_job *job);
int reduce_phase(ummr_job *job);
int combine_phase(ummr_job *job);

/* Whether what is acknowledged is kept in storage. */
static inline bool syncs(const ummr_job *job)
{
	return job->folder && job->config.sync_tasks != UMMR_SYNC_NEVER;
}

/* Before the first of them: the window's file becomes that of this run. */
int reduce_begin_results(ummr_job *job);
/* The table, sorted, to the streams from which the run comes; and the run, of all of them and of what the table has. */
int sort_table(ummr_job *job);
int sort_finish(ummr_job *job);
void sort_close(ummr_job *job);

/* What becomes of the pairs of a source, in a stream; this one leaves them as they are. */
typedef int take_function(ummr_job *job, struct source *from, struct stream *to);
int source_copy(ummr_job *job, struct source *from, struct stream *to);

/* Merges what open readers read, and closes them. */
int merge_readers(ummr_job *job, struct reader *readers, unsigned count, take_function *take, struct stream *to);

/* Merges the rank's run with another one, whose open reader is closed then. */
int combine_run(ummr_job *job, const struct reader *other);

/* Calls reduce_all for each key; what that puts goes into a stream. */
int values_reduce(ummr_job *job, struct source *from, struct stream *to);

/* The walk begins; runs that went to other ranks are not needed any more. */
void result_open(ummr_job *job);

/* Collective, both. Finds what an earlier job has acknowledged; makes all as it was in the run that begins. */
int resume_find(ummr_job *job);
int resume_begin(ummr_job *job);

#endif
