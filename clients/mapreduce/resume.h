/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The beginning of a run: a new one, or the continuation of a run that was interrupted. Each rank
 * has its own record of acknowledged work (record.h), of the interrupted run or, if the rank had
 * not reached it, of the previous run. A rank that has lost its record has acknowledged nothing,
 * and its tasks are mapped again; ranks that have reduced already have the pairs of these tasks.
 */
#ifndef MAPREDUCE_RESUME_H
#define MAPREDUCE_RESUME_H

#include "mapreduce/job.h"

/* Compares the records of all ranks, and restores the result of the last complete run;
 * collective. */
int resume_find(ummr_job *job);

/* Prepares the windows for the next run; collective. */
int resume_begin(ummr_job *job);

#endif
