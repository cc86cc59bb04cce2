/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creating, running and ending jobs. Collective calls are made only before Map and after Combine:
 * they make the windows, and agree on errors. An error of a rank within the phases stops all ranks
 * by their Status windows; all ranks get its message at the end of the run.
 */
#include "mapreduce/job.h"

#include "mapreduce/config.h"
#include "mapreduce/error.h"
#include "mapreduce/input.h"
#include "mapreduce/phases.h"
#include "mapreduce/result.h"
#include "mapreduce/status.h"
#include "mapreduce/timeline.h"
#include "mapreduce/wait.h"
#include "mapreduce/work.h"

#include <errno.h>
#include <stdlib.h>

/* A number that differs if the bytes of numbers have another order. */
#define BYTE_ORDER_FACT 0x0102030405060708

/* The memory of a job. */
struct whole_job {
	struct ummr_job job;      /* the part that all modules see */
	struct input input;
	struct status status;
	struct timeline timeline;
	struct work work;
	struct result result;
	bool owns_files;          /* whether files in the storage folder belong to this job */
};

/* ---- Creating ---- */

/* The facts are in the order of their names in record.c. */
static int open_record(ummr_job *job)
{
	const struct ummr_config *c = &job->config;
	const struct input *in = job->input;
	const uint64_t facts[RECORD_FACTS] = {
		(uint64_t)job->ranks, in->list.count, in->list.size, in->list.stamp, in->task_size,
		c->bucket_size, (uint64_t)c->split, c->record_size, (uint64_t)c->order,
		c->reduce_all != NULL, c->tag, BYTE_ORDER_FACT,
	};

	return record_open(&job->work->record, facts, (unsigned)job->ranks, (uint64_t)in->tasks);
}

static int open_storage(ummr_job *job)
{
	int result = open_record(job);

	return agree_result(job->comm, result < 0 ? -1 : work_open_storage(job));
}

/* Opening the file of the timeline truncates it, so it must not be a file of the input. */
static int open_timeline(ummr_job *job)
{
	const char *path = job->config.timeline;
	int result = 0;

	if (job->rank == 0 && path && input_has_file(job->input, path))
		result = set_error(EINVAL, "cannot write the timeline '%s': it is a file of the "
				   "input. Try another path", path);
	if (agree_result(job->comm, result) < 0)
		return -1;
	return timeline_open(job->timeline, job->comm, path);
}

static int take_config(ummr_job *job, const struct ummr_config *config)
{
	int result;

	job->work->buckets = calloc((size_t)job->ranks, sizeof(*job->work->buckets));
	result = job->work->buckets ? config_copy(&job->config, config)
				    : set_error(ENOMEM, "cannot create a job: no memory");
	return agree_result(job->comm, result) < 0 ? -1 : config_compare(&job->config, job->comm);
}

static int open_job(struct whole_job *whole, const struct ummr_config *config)
{
	ummr_job *job = &whole->job;

	if (take_config(job, config) < 0 || input_open(job->input, job->comm, &job->config) < 0 ||
	    open_timeline(job) < 0 || open_storage(job) < 0 ||
	    agree_result(job->comm, status_open(job->status, job->comm)) < 0 ||
	    work_open_windows(job) < 0)
		return -1;
	whole->owns_files = true;
	if (resume_find(job) < 0)
		return -1;
	/* The program may free these objects from now on. */
	job->config.inputs = NULL;
	job->config.info = NULL;
	job->config.storage = NULL;
	job->config.timeline = NULL;
	return 0;
}

static void close_job(struct whole_job *whole)
{
	ummr_job *job = &whole->job;
	bool is_finished = job->state == JOB_DONE && !job->result->has_write_failed;
	bool removes_files = is_finished || whole->work.record.header.number == 0;

	reader_close(&job->result->reader);
	work_close(job, whole->owns_files && removes_files);
	status_close(job->status);
	input_close(job->input);
	timeline_close(job->timeline);
	MPI_Comm_free(&job->comm);
	free(whole);
}

int ummr_create(MPI_Comm comm, const struct ummr_config *config, ummr_job **created)
{
	struct whole_job *whole = calloc(1, sizeof(*whole));
	ummr_job *job;

	if (agree_result(comm, whole ? 0 : set_error(ENOMEM, "cannot create a job: no "
						     "memory")) < 0) {
		free(whole);
		return -1;
	}
	job = &whole->job;
	job->input = &whole->input;
	job->status = &whole->status;
	job->timeline = &whole->timeline;
	job->work = &whole->work;
	job->result = &whole->result;
	job->status->win = MPI_WIN_NULL;
	work_clear(job->work);
	MPI_Comm_dup(comm, &job->comm);
	MPI_Comm_rank(comm, &job->rank);
	MPI_Comm_size(comm, &job->ranks);
	if (open_job(whole, config) < 0) {
		close_job(whole);
		return restore_error();
	}
	*created = job;
	return 0;
}

int ummr_end(ummr_job *job)
{
	if (job->state == JOB_MAPPING || job->state == JOB_RUNNING)
		return set_error(EINVAL, "cannot end the job: it is running. Try ummr_end() when "
				 "ummr_run() has returned");
	/* Rank 0 may read the result for a long time before it ends the job. */
	wait_for_all_ranks(job->comm);
	close_job((struct whole_job *)job);
	return 0;
}

/* ---- Running ---- */

static int run_phase(ummr_job *job, int number, int (*phase)(ummr_job *job))
{
	int result;

	timeline_add(job->timeline, number, EVENT_BEGIN);
	result = phase(job);
	timeline_add(job->timeline, number, EVENT_END);
	return result;
}

static int run_phases(ummr_job *job)
{
	if (!job->work->is_all_reduced && run_phase(job, UMMR_PHASE_MAP, map_phase) < 0)
		return -1;
	if (!status_is_stopped(job->status) &&
	    run_phase(job, UMMR_PHASE_REDUCE, reduce_phase) < 0)
		return -1;
	if (status_is_stopped(job->status))
		return 0;
	return run_phase(job, UMMR_PHASE_COMBINE, combine_phase);
}

static int run_until_stopped(ummr_job *job)
{
	int result = run_phases(job);

	/* If another rank has failed, the tasks of this one need not be mapped again. */
	if (result == 0)
		result = work_finish_sync(job, UMMR_PHASE_MAP);
	if (result < 0)
		status_stop(job->status);
	return result;
}

int ummr_run(ummr_job *job)
{
	int result;

	if (job->state == JOB_FAILED)
		return set_error(EINVAL, "cannot run the job: it has failed. Try ummr_end() and "
				 "another job");
	if (job->state != JOB_NEW && job->state != JOB_DONE)
		return set_error(EINVAL, "cannot run the job: it is already running, and one of "
				 "its functions called ummr_run()");
	result_close(job);
	job->result->has_write_failed = false;
	job->state = JOB_RUNNING;
	wait_for_all_ranks(job->comm);
	timeline_start(job->timeline, job->comm);
	result = resume_begin(job);
	if (result == 0)
		result = agree_result(job->comm, run_until_stopped(job));
	if (timeline_write(job->timeline, job->comm) < 0)
		result = -1;
	for (int i = 0; i < job->ranks; i++)
		stream_close(&job->work->buckets[i]);
	result_open(job);
	if (result == 0) {
		job->complete_runs++;
		report_progress(job, UMMR_PHASE_DONE, 1, 1);
	}
	job->state = result == 0 ? JOB_DONE : JOB_FAILED;
	return result == 0 ? 0 : restore_error();
}

uint64_t ummr_runs(const ummr_job *job)
{
	return job->complete_runs;
}
