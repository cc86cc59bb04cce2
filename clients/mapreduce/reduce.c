/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/phases.h"

#include "mapreduce/config.h"
#include "mapreduce/error.h"
#include "mapreduce/reader.h"
#include "mapreduce/sort.h"
#include "mapreduce/status.h"
#include "mapreduce/timeline.h"
#include "mapreduce/work.h"

#include <errno.h>
#include <stdlib.h>

static int add_pairs(ummr_job *job, struct sorter *s, struct reader *r)
{
	size_t transfer = config_transfer_size(&job->config);
	uint64_t limit = job->config.table_size > transfer ? job->config.table_size : transfer;
	struct pair p;
	int found;

	while ((found = reader_next(r, &p)) > 0) {
		if (s->table.bytes > limit &&
		    (work_begin_results(job) < 0 || sort_write_table(job, s) < 0))
			return -1;
		if (table_add(&s->table, p.header.hash, p.key, p.header.key_size, p.value,
			      p.header.value_size) < 0)
			return -1;
		status_serve_sometimes(job->status);
	}
	return found;
}

static int reduce_rank(ummr_job *job, struct sorter *s, int rank)
{
	struct reader r;
	int result = 0;

	if (rank == job->rank)
		reader_open_local(&r, &job->work->buckets[rank]);
	else
		result = reader_open_remote(&r, &job->work->pairs, rank, (unsigned)job->rank);
	if (result == 0)
		result = add_pairs(job, s, &r);
	reader_close(&r);
	return result;
}

/* Reads the pairs of each rank that has finished Map since the last call. is_read: an element for
 * each rank. Returns the number of ranks, or -1. */
static int reduce_mapped_ranks(ummr_job *job, struct sorter *s, bool *is_read)
{
	int count = 0;

	for (int i = 0; i < job->ranks; i++) {
		int rank = (job->rank + i) % job->ranks;

		if (is_read[rank] || status_get(job->status, rank, STATUS_PHASE) < PHASE_MAPPED)
			continue;
		if (reduce_rank(job, s, rank) < 0)
			return -1;
		timeline_add(job->timeline, UMMR_PHASE_REDUCE, EVENT_STEP);
		is_read[rank] = true;
		count++;
		status_serve(job->status);
	}
	return count;
}

static int reduce_ranks(ummr_job *job, struct sorter *s)
{
	bool *is_read = calloc((size_t)job->ranks, sizeof(*is_read));
	int done = 0, count = 0;

	if (!is_read)
		return set_error(ENOMEM, "cannot reduce the pairs of %d ranks: no memory",
				 job->ranks);
	while (done < job->ranks && count >= 0 && !status_is_stopped(job->status)) {
		report_progress(job, UMMR_PHASE_REDUCE, (uint64_t)done, (uint64_t)job->ranks);
		while ((count = reduce_mapped_ranks(job, s, is_read)) == 0 &&
		       !status_is_stopped(job->status))
			status_wait(job->status);
		done += count;
	}
	free(is_read);
	return count < 0 ? -1 : 0;
}

/* Returns 0 without a complete run if an error of another rank has stopped the job. */
static int write_run(ummr_job *job, struct sorter *s)
{
	if (reduce_ranks(job, s) < 0)
		return -1;
	if (status_is_stopped(job->status))
		return 0;
	return work_begin_results(job) < 0 ? -1 : sort_finish(job, s);
}

int reduce_phase(ummr_job *job)
{
	struct sorter s;
	int result;

	if (job->work->record.header.is_reduced)
		return 0;
	result = sort_open(job, &s);
	if (result == 0)
		result = write_run(job, &s);
	sort_close(&s);
	if (result < 0 || status_is_stopped(job->status))
		return result;
	return work_acknowledge_run(job);
}
