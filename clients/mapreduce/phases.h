/* SPDX-License-Identifier: BSD-3-Clause */
/* The phases of a run. Each returns early, with 0, if the job is stopped. */
#ifndef MAPREDUCE_PHASES_H
#define MAPREDUCE_PHASES_H

#include "mapreduce/job.h"

/* Maps tasks until all are taken, and publishes the buckets with their pairs. */
int map_phase(ummr_job *job);

/* Reads the bucket of each rank that has finished Map, and writes the run of this rank. */
int reduce_phase(ummr_job *job);

/*
 * Merges the runs of all ranks along a tree. At level l, counted from 0, each rank whose number is
 * a multiple of 2^(l+1) merges its run with that of the rank 2^l above it, if there is one; that
 * rank has then finished. No two runs have the same key. Rank 0 gets the last run.
 */
int combine_phase(ummr_job *job);

/* ---- resume.c ---- */

/*
 * The beginning of a run: a new one, or the continuation of a run that was interrupted. Each rank
 * has its own record of acknowledged work (record.h), of the interrupted run or, if the rank had
 * not reached it, of the previous run. A rank that has lost its record has acknowledged nothing,
 * and its tasks are mapped again; ranks that have reduced already have the pairs of these tasks.
 */

/* Compares the records of all ranks, and restores the result of the last complete run;
 * collective. */
int resume_find(ummr_job *job);

/* Prepares the windows for the next run; collective. */
int resume_begin(ummr_job *job);

#endif
