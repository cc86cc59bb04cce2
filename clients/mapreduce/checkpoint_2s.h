/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checkpoints of MapReduce-2S: all pairs of all ranks, each time, written together to one file, which takes the place of the
 * one before when it is durable; and all runs, after Reduce, to one of two files, in turns.
 */
#ifndef MAPREDUCE_CHECKPOINT_2S_H
#define MAPREDUCE_CHECKPOINT_2S_H

#include "mapreduce/job.h"

/*
 * Collective. result: how it went until here; a rank that has failed takes part all the same. 0; -1 where that or this has
 * failed; 1: at another rank.
 */
int checkpoint_pairs(ummr_job *job, int result, int64_t tasks); /* of Map, after so many tasks: the buckets and the table */
int checkpoint_run(ummr_job *job, int result);                  /* of Reduce */

/* Collective, all, with results as above. What an interrupted job has left: job->checkpoint and job->complete say it. */
int checkpoint_find(ummr_job *job);
/* Into the buckets, and into job->run. */
int checkpoint_take_pairs(ummr_job *job);
int checkpoint_take_run(ummr_job *job, uint64_t run);

/* through: the files are not needed any more, and go. */
void checkpoint_close(ummr_job *job, bool through);

#endif
