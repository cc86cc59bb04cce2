/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Combine: a tree over the ranks. At level l, counted from 0, those whose number is a multiple of 2^(l+1) merge the run of the
 * rank 2^l above, where there is one, with their own; that rank is through then. In the end rank 0 has all of it. A key is
 * in one run only.
 */
#include "mapreduce/job.h"

int combine_run(ummr_job *job, const struct reader *other)
{
	struct reader readers[2];
	struct stream merged;
	int result;

	stream_open(&merged, &job->runs);
	reader_open_own(&readers[0], &job->run);
	readers[1] = *other;
	result = merge_readers(job, readers, 2, source_copy, &merged);
	stream_close(&job->run);
	job->run = merged;
	return result;
}

static int combine_with(ummr_job *job, int partner)
{
	struct reader theirs;

	return reader_open(&theirs, &job->runs, partner, 0) < 0 ? -1 : combine_run(job, &theirs);
}

/* false: the job was stopped before. */
static bool await_run(ummr_job *job, int rank)
{
	while (status_get(&job->status, rank, STATUS_PHASE) < PHASE_SORTED) {
		if (status_stopped(&job->status))
			return false;
		status_wait(&job->status);
	}
	return true;
}

static uint64_t levels_of(int ranks)
{
	uint64_t levels = 0;

	while ((1 << levels) < ranks)
		levels++;
	return levels;
}

int combine_phase(ummr_job *job)
{
	uint64_t level, levels = levels_of(job->ranks);

	for (level = 0; job->config.combine == UMMR_COMBINE_ON && level < levels; level++) {
		int step = 1 << level;

		report_progress(job, UMMR_PHASE_COMBINE, level, levels);
		if (job->rank & step)
			break;
		if (job->rank + step >= job->ranks)
			continue;
		if (!await_run(job, job->rank + step))
			return 0;
		if (combine_with(job, job->rank + step) < 0)
			return -1;
		timeline_add(&job->timeline, UMMR_PHASE_COMBINE, EVENT_STEP);
	}
	stream_publish(&job->run, 0);
	status_advance(&job->status, PHASE_MAPPED, PHASE_SORTED);
	return 0;
}
