/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/phases.h"

#include "mapreduce/merge.h"
#include "mapreduce/status.h"
#include "mapreduce/timeline.h"
#include "mapreduce/work.h"

static int merge_run_of(ummr_job *job, int rank)
{
	struct work *w = job->work;
	struct reader readers[2];
	struct stream merged;
	int result;

	if (reader_open_remote(&readers[1], &w->runs, rank, 0) < 0)
		return -1;
	reader_open_local(&readers[0], &w->run);
	stream_open(&merged, &w->runs);
	result = merge_readers(job, readers, 2, merge_copy, &merged);
	stream_close(&w->run);
	w->run = merged;
	return result;
}

/* Returns false if the job was stopped before the rank has finished. */
static bool wait_for_run(ummr_job *job, int rank)
{
	while (status_get(job->status, rank, STATUS_PHASE) < PHASE_SORTED) {
		if (status_is_stopped(job->status))
			return false;
		status_wait(job->status);
	}
	return true;
}

static uint64_t count_levels(int ranks)
{
	uint64_t levels = 0;

	while ((1 << levels) < ranks)
		levels++;
	return levels;
}

int combine_phase(ummr_job *job)
{
	uint64_t level, levels = count_levels(job->ranks);

	for (level = 0; job->config.combine == UMMR_COMBINE_ON && level < levels; level++) {
		int step = 1 << level;

		report_progress(job, UMMR_PHASE_COMBINE, level, levels);
		if (job->rank & step)
			break;
		if (job->rank + step >= job->ranks)
			continue;
		if (!wait_for_run(job, job->rank + step))
			return 0;
		if (merge_run_of(job, job->rank + step) < 0)
			return -1;
		timeline_add(job->timeline, UMMR_PHASE_COMBINE, EVENT_STEP);
	}
	stream_publish(&job->work->run, 0);
	status_advance(job->status, PHASE_MAPPED, PHASE_SORTED);
	return 0;
}
