/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce: the pairs that all ranks have for this one become its run. */
#ifndef MAPREDUCE_REDUCE_H
#define MAPREDUCE_REDUCE_H

#include "mapreduce/job.h"

/* Reads the bucket of each rank that has finished Map, and writes the run. Returns early, with 0,
 * if the job is stopped. */
int reduce_phase(ummr_job *job);

#endif
