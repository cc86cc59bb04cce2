/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checkpoints of MapReduce-2S: all pairs of all ranks, each time, written together to one file, which takes the place of the
 * one before when it is durable.
 */
#ifndef MAPREDUCE_CHECKPOINT_2S_H
#define MAPREDUCE_CHECKPOINT_2S_H

#include "mapreduce/job.h"

/*
 * Collective. result: how it went until here; a rank that has failed takes part all the same. 0; -1 where that or this has
 * failed; 1: at another rank.
 */
int checkpoint_pairs(ummr_job *job, int result); /* of Map: the buckets and the table */
int checkpoint_run(ummr_job *job, int result);   /* of Reduce */

#endif
