/* SPDX-License-Identifier: BSD-3-Clause */
/* The result of a job: reading it, and writing it to a file. */
#ifndef MAPREDUCE_RESULT_H
#define MAPREDUCE_RESULT_H

#include "mapreduce/job.h"
#include "mapreduce/reader.h"

#include <stdbool.h>

struct result {
	struct reader reader;  /* position of ummr_next */
	bool has_write_failed; /* whether the last ummr_write has failed, so that the result exists
				* only in storage */
};

/* Begins to read the run of this rank. Runs that went to other ranks are dropped. */
void result_open(ummr_job *job);
/* Drops the result. */
void result_close(ummr_job *job);

#endif
