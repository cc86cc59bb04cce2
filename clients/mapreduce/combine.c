/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Combine: a tree over the ranks. At level l, counted from 0, those whose number is a multiple of 2^(l+1) merge the run of the
 * rank 2^l above, where there is one, with their own; that rank is through then. In the end rank 0 has all of it. A key is
 * in one run only.
 */
#include "mapreduce/job.h"

static int compare(const ummr_job *job, const struct pair *a, const struct pair *b)
{
	int order = compare_keys(a->key, a->head.key_size, b->key, b->head.key_size);

	return job->config.order == UMMR_ORDER_DESCENDING ? -order : order;
}

int merge_runs(ummr_job *job, struct reader *a, struct reader *b, struct stream *to)
{
	struct pair x, y;
	int in_a = reader_next(a, &x), in_b = reader_next(b, &y);

	while (in_a > 0 || in_b > 0) {
		bool first = in_b == 0 || (in_a > 0 && compare(job, &x, &y) < 0);

		if (in_a < 0 || in_b < 0 || stream_append(to, first ? &x : &y) < 0)
			return -1;
		if (first)
			in_a = reader_next(a, &x);
		else
			in_b = reader_next(b, &y);
	}
	return in_a < 0 || in_b < 0 ? -1 : 0;
}

static int merge(ummr_job *job, int partner)
{
	struct reader mine, theirs;
	struct stream merged;
	int result;

	stream_open(&merged, &job->runs);
	reader_open_own(&mine, &job->run);
	result = reader_open(&theirs, &job->runs, partner, 0);
	if (result == 0)
		result = merge_runs(job, &mine, &theirs, &merged);
	reader_close(&mine);
	reader_close(&theirs);
	stream_close(&job->run);
	job->run = merged;
	if (result == 0 && job->config.sync_tasks != UMMR_SYNC_NEVER)
		result = space_sync(&job->runs);
	return result;
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
		if (merge(job, job->rank + step) < 0)
			return -1;
		timeline_add(&job->timeline, UMMR_PHASE_COMBINE, EVENT_STEP);
	}
	stream_publish(&job->run, 0);
	status_advance(&job->status, PHASE_MAPPED, PHASE_SORTED);
	return 0;
}
