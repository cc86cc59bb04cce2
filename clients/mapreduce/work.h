/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The work of a job: its windows with pairs, the acknowledged part of it, and syncs, which make
 * buckets durable. A sync starts write-back behind one task and ends behind the next one, so that
 * storage works while the rank maps.
 */
#ifndef MAPREDUCE_WORK_H
#define MAPREDUCE_WORK_H

#include "mapreduce/job.h"
#include "mapreduce/lock.h"
#include "mapreduce/record.h"
#include "mapreduce/stream.h"

#include <stdbool.h>
#include <stdint.h>

struct work {
	char *folder;               /* storage folder; NULL: memory */
	struct lock lock;           /* lock of the folder */
	struct pair_window pairs;   /* Key-Value window: buckets, numbered by their target ranks */
	struct pair_window runs;    /* Combine window: one stream, the run of the rank */
	struct stream *buckets;     /* buckets by target rank */
	struct stream run;          /* pairs of this rank's keys, in order */
	struct record record;       /* acknowledged work */
	unsigned char *done_tasks;  /* a bit for each task that was acknowledged before the run */
	bool is_resumed;            /* whether another job has begun the next run */
	bool is_all_reduced;        /* whether all ranks have acknowledged their runs */
	bool has_begun_results;     /* whether the window with runs may be written */
	bool has_pending_sync;      /* whether a sync was started and has not ended */
	uint32_t tasks_since_sync;  /* tasks that this rank has mapped since the last sync */
	double last_sync_end;       /* clock_seconds() at the end of the last sync */
	double last_sync_seconds;   /* time that the last sync has taken from the rank */
};

/* Sets all handles to invalid values, so that work_close can be called. */
void work_clear(struct work *w);
/* Opens the storage folder, if there is one, and reads the record of this rank. */
int work_open_storage(ummr_job *job);
/* Makes the windows; collective. */
int work_open_windows(ummr_job *job);
/* removes_files: the files of the job in the folder are removed. Collective. */
void work_close(ummr_job *job, bool removes_files);

/* Begins the measurement of time between syncs, at the beginning of Map. */
void work_start_sync_clock(struct work *w);
bool work_is_sync_due(const ummr_job *job);
/* Starts write-back of the buckets, which the record describes. start: clock_seconds() before the
 * rank has begun to fill the buckets for this sync. */
int work_start_sync(ummr_job *job, double start);
/* Ends a sync that was started. phase: UMMR_PHASE_*, for the timeline. */
int work_finish_sync(ummr_job *job, int phase);

/* Prepares the window with runs for the first pairs of this run. */
int work_begin_results(ummr_job *job);

/* Makes the run of this rank durable, so that it need not reduce again. */
int work_acknowledge_run(ummr_job *job);

#endif
