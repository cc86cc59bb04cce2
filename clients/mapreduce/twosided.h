/* SPDX-License-Identifier: BSD-3-Clause */
/* MapReduce-2S: the method with two-sided and collective MPI. */
#ifndef MAPREDUCE_TWOSIDED_H
#define MAPREDUCE_TWOSIDED_H

#include "mapreduce/job.h"

/* Instead of windows. */
void twosided_open(ummr_job *job);

/* Collective. Finds what an interrupted job has left in storage. */
int twosided_find(ummr_job *job);

/* Collective. All phases, or what is left of them. An error may be at one rank only, and is 1 at others then: ranks agree on it afterwards. */
int twosided_run(ummr_job *job);

#endif
