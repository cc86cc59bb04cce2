/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sorting the pairs of Reduce. A full table is written as a sorted stream of level 0. When there
 * are enough streams of one level, they are merged into one of the next level. At the end, all
 * streams are merged into the run of this rank; if the table was never full, the run is written
 * from it. This needs memory for one table, and for a part of each stream that is merged.
 */
#ifndef MAPREDUCE_SORT_H
#define MAPREDUCE_SORT_H

#include "mapreduce/job.h"
#include "mapreduce/stream.h"
#include "mapreduce/table.h"

struct sorter {
	struct table table;     /* pairs that are in no stream */
	struct stream *streams; /* sorted streams; levels never increase from one to the next */
	unsigned *levels;       /* level of each stream */
	unsigned count;         /* number of streams */
	unsigned capacity;      /* number of streams that fit into memory */
};

int sort_open(ummr_job *job, struct sorter *s);
void sort_close(struct sorter *s);

/* Writes the table as a stream, and empties it. */
int sort_write_table(ummr_job *job, struct sorter *s);

/* Writes the run of this rank. */
int sort_finish(ummr_job *job, struct sorter *s);

#endif
