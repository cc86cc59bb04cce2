/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing the pairs of a source to a stream: unchanged, or reduced. */
#ifndef MAPREDUCE_MERGE_H
#define MAPREDUCE_MERGE_H

#include "mapreduce/job.h"
#include "mapreduce/source.h"
#include "mapreduce/stream.h"

typedef int write_function(ummr_job *job, struct source *from, struct stream *to);

/* Writes the pairs unchanged. */
int merge_copy(ummr_job *job, struct source *from, struct stream *to);

/* Reduces the pairs of each key to one pair by the reduce function. */
int merge_reduce(ummr_job *job, struct source *from, struct stream *to);

/* Merges the streams of open readers by `write`, and closes the readers. */
int merge_readers(ummr_job *job, struct reader *readers, unsigned count, write_function *write,
		  struct stream *to);

/* ---- values.c ---- */

/* Calls reduce_all for each key of a source of groups, and writes the pairs of ummr_put. */
int values_reduce(ummr_job *job, struct source *from, struct stream *to);

#endif
