/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/phases.h"

#include "common/random.h"
#include "mapreduce/error.h"
#include "mapreduce/result.h"
#include "mapreduce/status.h"
#include "mapreduce/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t count_tasks(const unsigned char *tasks, uint64_t bytes)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < bytes; i++)
		count += (uint64_t)__builtin_popcount(tasks[i]);
	return count;
}

/* Returns a record of the last run, or NULL if no rank has a record. */
static const struct record_header *find_newest(const struct record_header *all, int ranks)
{
	const struct record_header *newest = NULL;

	for (int i = 0; i < ranks; i++)
		if (all[i].number > 0 && (!newest || all[i].run > newest->run))
			newest = &all[i];
	return newest;
}

/* Returns whether all records are of one job, and complete: the interrupted run may need the result
 * of the previous run from each rank. */
static bool can_resume(const struct record_header *all, int ranks,
		       const struct record_header *newest)
{
	for (int i = 0; i < ranks; i++) {
		const struct record_header *s = &all[i];
		bool has_previous_result = s->run + 1 == newest->run && s->is_reduced;

		if (s->number == 0) {
			if (newest->run > 1)
				return false;
		} else if (s->id != newest->id || (s->run != newest->run && !has_previous_result)) {
			return false;
		}
	}
	return true;
}

static void begin_job(ummr_job *job)
{
	struct record *r = &job->work->record;

	record_clear(r);
	r->header.id = random_id();
	MPI_Bcast(&r->header.id, 1, MPI_UINT64_T, 0, job->comm);
}

/* Continues the run of the newest record: finds the tasks that are in buckets of any rank. */
static int resume_run(ummr_job *job, const struct record_header *all,
		      const struct record_header *newest)
{
	struct work *w = job->work;
	struct record *r = &w->record;
	uint64_t tasks;

	r->header.id = newest->id;
	if (r->header.run < newest->run)
		record_begin_run(r, newest->run);
	w->is_resumed = true;
	job->complete_runs = r->header.run - 1;
	w->is_all_reduced = true;
	for (int i = 0; i < job->ranks; i++)
		if (all[i].run != r->header.run || !all[i].is_reduced)
			w->is_all_reduced = false;
	MPI_Allreduce(r->tasks, w->done_tasks, (int)r->task_bytes, MPI_BYTE, MPI_BOR, job->comm);
	tasks = count_tasks(r->tasks, r->task_bytes);
	MPI_Allreduce(MPI_IN_PLACE, &tasks, 1, MPI_UINT64_T, MPI_SUM, job->comm);
	if (tasks != count_tasks(w->done_tasks, r->task_bytes))
		return set_error(EUCLEAN, "cannot continue from '%s': two ranks have the same "
				 "task. Try to remove all files ummr.* there, to begin again",
				 w->folder);
	return 0;
}

/* Restores the runs of the last complete run, and combines them again. */
static int restore_result(ummr_job *job)
{
	struct work *w = job->work;
	unsigned which = job->complete_runs % 2;
	int result;

	window_use_file(&w->runs, w->record.results[which]);
	result = agree_result(job->comm,
			      stream_restore(&w->run, &w->runs, &w->record.runs[which]));
	w->run.keeps_ranges = true;
	if (result < 0)
		return -1;
	status_reset(job->status);
	status_advance(job->status, PHASE_MAP, PHASE_MAPPED);
	result = combine_phase(job);
	if (result < 0)
		status_stop(job->status);
	result = agree_result(job->comm, result);
	if (result == 0)
		result_open(job);
	return result;
}

int resume_find(ummr_job *job)
{
	const struct record *r = &job->work->record;
	struct record_header *all = calloc((size_t)job->ranks, sizeof(*all));
	const struct record_header *newest;
	int result = 0;

	job->work->done_tasks = calloc(r->task_bytes, 1);
	if (!all || !job->work->done_tasks)
		result = set_error(ENOMEM, "cannot continue a job of %d ranks: no memory",
				   job->ranks);
	if (agree_result(job->comm, result) < 0) {
		free(all);
		return -1;
	}
	MPI_Allgather(&r->header, sizeof(*all), MPI_BYTE, all, sizeof(*all), MPI_BYTE, job->comm);
	newest = find_newest(all, job->ranks);
	if (newest && newest->run > 0 && can_resume(all, job->ranks, newest))
		result = resume_run(job, all, newest);
	else
		begin_job(job);
	free(all);
	if (result == 0 && job->complete_runs > 0)
		result = restore_result(job);
	return result;
}

static int restore_streams(ummr_job *job)
{
	struct work *w = job->work;
	struct record *r = &w->record;

	for (int i = 0; i < job->ranks; i++) {
		if (!w->is_resumed || w->is_all_reduced)
			stream_open(&w->buckets[i], &w->pairs);
		else if (stream_restore(&w->buckets[i], &w->pairs, &r->buckets[i]) < 0)
			return -1;
	}
	stream_open(&w->run, &w->runs);
	if (r->header.is_reduced &&
	    stream_restore(&w->run, &w->runs, &r->runs[r->header.run % 2]) < 0)
		return -1;
	w->run.keeps_ranges = r->header.is_reduced;
	return 0;
}

static void begin_new_run(ummr_job *job)
{
	struct work *w = job->work;

	record_begin_run(&w->record, job->complete_runs + 1);
	memset(w->done_tasks, 0, w->record.task_bytes);
	w->is_all_reduced = false;
	if (w->record.pairs)
		unlink(w->record.pairs);
}

int resume_begin(ummr_job *job)
{
	struct work *w = job->work;
	struct record *r = &w->record;
	int result;

	if (!w->is_resumed)
		begin_new_run(job);
	window_use_file(&w->pairs, r->pairs);
	window_use_file(&w->runs, r->results[r->header.run % 2]);
	result = agree_result(job->comm, restore_streams(job));
	w->is_resumed = false;
	w->has_pending_sync = w->has_begun_results = false;
	status_reset(job->status);
	status_add(job->status, job->rank, STATUS_DONE,
		   (int64_t)count_tasks(r->tasks, r->task_bytes));
	if (w->is_all_reduced)
		status_advance(job->status, PHASE_MAP, PHASE_MAPPED);
	return result;
}
