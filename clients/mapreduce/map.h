/* SPDX-License-Identifier: BSD-3-Clause */
/* Map: tasks are mapped, and their pairs reduced, into the buckets of this rank. */
#ifndef MAPREDUCE_MAP_H
#define MAPREDUCE_MAP_H

#include "mapreduce/job.h"

/* Maps tasks until all are taken or the job is stopped, and publishes the buckets. */
int map_phase(ummr_job *job);

#endif
