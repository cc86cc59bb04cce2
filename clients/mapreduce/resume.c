/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a run begins: as a new one, or where an earlier job was interrupted. Each rank has its own record of that (state.h), of
 * this run or, where it had not come that far, of the last one. A rank that has lost its record has acknowledged nothing: its
 * tasks are mapped again, and those who have reduced already have them from before.
 */
#include "mapreduce/job.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Of a rank's record. */
struct record {
	uint64_t number, id, run, reduced;
};

static uint64_t count_tasks(const unsigned char *tasks, uint64_t bytes)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < bytes; i++)
		count += (uint64_t)__builtin_popcount(tasks[i]);
	return count;
}

static const struct record *newest(const struct record *all, int ranks)
{
	const struct record *r = NULL;

	for (int i = 0; i < ranks; i++)
		if (all[i].number > 0 && (!r || all[i].run > r->run))
			r = &all[i];
	return r;
}

/* Of one job, and none further behind than the result of the run before, which the run that is interrupted may need. */
static bool fit(const struct record *all, int ranks, const struct record *newest)
{
	for (int i = 0; i < ranks; i++) {
		const struct record *r = &all[i];

		if (r->number == 0 ? newest->run > 1 : r->id != newest->id ||
		    (r->run != newest->run && (r->run + 1 != newest->run || !r->reduced)))
			return false;
	}
	return true;
}

static void begin_job(ummr_job *job)
{
	struct timespec now;

	state_forget(&job->acknowledged);
	clock_gettime(CLOCK_REALTIME, &now);
	job->acknowledged.id = (uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec << 16 ^ (uint64_t)getpid();
	MPI_Bcast(&job->acknowledged.id, 1, MPI_UINT64_T, 0, job->comm);
}

/* In run `run` all ranks know which tasks are done. */
static int resume(ummr_job *job, const struct record *all, const struct record *newest)
{
	struct state *s = &job->acknowledged;
	uint64_t tasks;

	s->id = newest->id;
	if (s->run < newest->run)
		state_begin_run(s, newest->run);
	job->resumed = true;
	job->complete = s->run - 1;
	job->all_reduced = true;
	for (int i = 0; i < job->ranks; i++)
		job->all_reduced = job->all_reduced && all[i].run == s->run && all[i].reduced;
	MPI_Allreduce(s->tasks, job->done, (int)s->task_bytes, MPI_BYTE, MPI_BOR, job->comm);
	tasks = count_tasks(s->tasks, s->task_bytes);
	MPI_Allreduce(MPI_IN_PLACE, &tasks, 1, MPI_UINT64_T, MPI_SUM, job->comm);
	if (tasks != count_tasks(job->done, s->task_bytes))
		return fail(EUCLEAN, "cannot continue from '%s': two ranks have the same task. Try "
			    "to remove all files ummr.* there, to begin again", job->folder);
	return 0;
}

/* That of the last complete run, which only has to be combined again. */
static int restore_result(ummr_job *job)
{
	struct state *s = &job->acknowledged;
	unsigned which = job->complete % 2;
	int result;

	space_use_file(&job->runs, s->results[which]);
	result = agree(job->comm, stream_restore(&job->run, &job->runs, &s->runs[which]));
	job->run.kept = true;
	if (result < 0)
		return -1;
	status_reset(&job->status);
	status_advance(&job->status, PHASE_MAP, PHASE_MAPPED);
	result = combine_phase(job);
	if (result < 0)
		status_stop(&job->status);
	result = agree(job->comm, result);
	if (result == 0)
		result_open(job);
	return result;
}

int resume_find(ummr_job *job)
{
	const struct state *s = &job->acknowledged;
	struct record mine = { s->number, s->id, s->run, s->reduced }, *all = calloc((size_t)job->ranks, sizeof(mine));
	const struct record *last;
	int result = 0;

	job->done = calloc(s->task_bytes, 1);
	if (agree(job->comm, all && job->done ? 0 : fail(ENOMEM, "cannot continue a job of %d "
			"ranks: no memory", job->ranks)) < 0) {
		free(all);
		return -1;
	}
	MPI_Allgather(&mine, 4, MPI_UINT64_T, all, 4, MPI_UINT64_T, job->comm);
	last = newest(all, job->ranks);
	if (last && last->run > 0 && fit(all, job->ranks, last))
		result = resume(job, all, last);
	else
		begin_job(job);
	free(all);
	if (result == 0 && job->complete > 0)
		result = restore_result(job);
	return result;
}

static int restore_windows(ummr_job *job)
{
	struct state *s = &job->acknowledged;

	for (int i = 0; i < job->ranks; i++) {
		if (!job->resumed || job->all_reduced)
			stream_open(&job->buckets[i], &job->pairs);
		else if (stream_restore(&job->buckets[i], &job->pairs, &s->buckets[i]) < 0)
			return -1;
	}
	stream_open(&job->run, &job->runs);
	if (s->reduced && stream_restore(&job->run, &job->runs, &s->runs[s->run % 2]) < 0)
		return -1;
	job->run.kept = s->reduced;
	return 0;
}

int resume_begin(ummr_job *job)
{
	struct state *s = &job->acknowledged;
	int result;

	if (!job->resumed) {
		state_begin_run(s, job->complete + 1);
		memset(job->done, 0, s->task_bytes);
		job->all_reduced = false;
		if (s->pairs)
			unlink(s->pairs);
	}
	space_use_file(&job->pairs, s->pairs);
	space_use_file(&job->runs, s->results[s->run % 2]);
	result = agree(job->comm, restore_windows(job));
	job->resumed = false;
	job->unsynced = job->results_begun = false;
	job->emit_failed = 0;
	job->fresh_count = 0;
	status_reset(&job->status);
	status_add(&job->status, job->rank, STATUS_DONE, (int64_t)count_tasks(s->tasks, s->task_bytes));
	if (job->all_reduced)
		status_advance(&job->status, PHASE_MAP, PHASE_MAPPED);
	return result;
}
