/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MAPREDUCE_VALUES_H
#define MAPREDUCE_VALUES_H

#include "mapreduce/job.h"
#include "mapreduce/source.h"
#include "mapreduce/stream.h"

/* Calls reduce_all for each key of a source of groups, and writes the pairs of ummr_put. */
int values_reduce(ummr_job *job, struct source *from, struct stream *to);

#endif
