/* SPDX-License-Identifier: BSD-3-Clause */
/* Combine: the runs of all ranks become one at rank 0. */
#ifndef MAPREDUCE_COMBINE_H
#define MAPREDUCE_COMBINE_H

#include "mapreduce/job.h"

/*
 * Merges runs along a tree. At level l, counted from 0, each rank whose number is a multiple of
 * 2^(l+1) merges its run with that of the rank 2^l above it, if there is one; that rank has then
 * finished. No two runs have the same key. Returns early, with 0, if the job is stopped.
 */
int combine_phase(ummr_job *job);

#endif
