/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls. What is collective happens before Map and after Combine: making the windows, and agreeing on how it went. An
 * error at one rank within the phases tells all ranks to stop, by their Status windows; the sentence comes in the end.
 */
#include "mapreduce/job.h"

#include "mapreduce/checkpoint_2s.h"
#include "mapreduce/config.h"
#include "mapreduce/error.h"
#include "mapreduce/others.h"
#include "mapreduce/twosided.h"
#include "mapreduce/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ummap.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void report_progress(ummr_job *job, int phase, uint64_t done, uint64_t all)
{
	struct ummr_progress p = { phase, done, all };

	if (job->config.progress)
		job->config.progress(&p, job->config.arg);
}

/* ---- Creating ---- */

static int check_storage(const char *folder)
{
	struct stat st;

	if (stat(folder, &st) < 0)
		return fail(errno, "cannot use the storage folder '%s': %s", folder,
			    strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(ENOTDIR, "cannot use the storage folder '%s': it is not a folder",
			    folder);
	if (access(folder, W_OK | X_OK) < 0)
		return fail(errno, "cannot use the storage folder '%s': %s", folder,
			    strerror(errno));
	return 0;
}

/* What libummap cannot do at all, such as a UMMAP_MEM_LIMIT that is no size, is said now, and not in the middle of Map. */
static int try_mapping(const struct ummr_config *c)
{
	void *base;

	if ((!c->storage || c->method == UMMR_METHOD_2S) && c->input != UMMR_INPUT_UMMAP)
		return 0;
	if (ummap_open("posix:/proc/self/exe", 1, 0, PROT_READ, NULL, &base) < 0)
		return fail(errno, "%s", umerrormsg());
	umunmap(base, 0);
	return 0;
}

/* In the order of the names that state.c has. */
static int open_state(ummr_job *job)
{
	const struct ummr_config *c = &job->config;
	const struct input *in = &job->input;
	const uint64_t facts[STATE_FACTS] = {
		(uint64_t)job->ranks, in->count, in->size, in->stamp, in->task_size, c->bucket_size, (uint64_t)c->split,
		c->record_size, (uint64_t)c->order, c->seed, c->reduce_all != NULL, c->tag, 0x0102030405060708,
	};
	int result = try_mapping(c);

	if (result == 0)
		result = state_open(&job->acknowledged, facts, (unsigned)job->ranks, (uint64_t)in->tasks);
	if (result == 0 && c->storage) {
		job->folder = strdup(c->storage);
		result = !job->folder ? fail(ENOMEM, "cannot use the storage folder: no memory "
				"for its name") : check_storage(job->folder);
		if (result == 0)
			result = lock_take(&job->lock, job->folder, job->rank);
		if (result == 0 && c->method == UMMR_METHOD_1S)
			result = state_find(&job->acknowledged, job->folder, job->rank, syncs(job));
		if (result == 0 && c->method == UMMR_METHOD_1S && job->rank == 0)
			result = others_clear(&job->acknowledged, job->folder, job->ranks);
	}
	return agree(job->comm, result);
}

/* Hints are set for memory only, so that windows can have others at each rank. */
static MPI_Info copy_info(const struct ummr_config *c)
{
	MPI_Info copy;

	if (c->info && *c->info != MPI_INFO_NULL)
		MPI_Info_dup(*c->info, &copy);
	else
		MPI_Info_create(&copy);
	return copy;
}

/* Rank 0's, which would make a file empty that is there. */
static int open_timeline(ummr_job *job)
{
	const char *path = job->config.timeline;

	if (agree(job->comm, job->rank == 0 && path && input_has(&job->input, path)
				     ? fail(EINVAL, "cannot write the timeline '%s': it is a file "
					    "of the input. Try another path", path) : 0) < 0)
		return -1;
	return timeline_open(&job->timeline, job->comm, path);
}

static int open_space(ummr_job *job, struct space *s, int streams, int lock)
{
	return agree(job->comm, space_open(s, job->comm, (unsigned)streams, job->config.bucket_size,
					   job->config.transfer_limit, lock, copy_info(&job->config)));
}

static int open_windows(ummr_job *job)
{
	if (open_space(job, &job->pairs, job->ranks, MPI_LOCK_SHARED) < 0)
		return -1;
	return open_space(job, &job->runs, 1, MPI_LOCK_EXCLUSIVE);
}

static int prepare(ummr_job *job, const struct ummr_config *config)
{
	job->buckets = calloc((size_t)job->ranks, sizeof(*job->buckets));
	if (agree(job->comm, job->buckets ? config_take(&job->config, config)
					  : fail(ENOMEM, "cannot create a job: no memory")) < 0 ||
	    config_compare(&job->config, job->comm) < 0 || input_open(&job->input, job->comm, &job->config) < 0 ||
	    open_timeline(job) < 0 || open_state(job) < 0 ||
	    agree(job->comm, status_open(&job->status, job->comm)) < 0)
		return -1;
	if (job->config.method == UMMR_METHOD_2S)
		twosided_open(job);
	else if (open_windows(job) < 0)
		return -1;
	for (int i = 0; i < job->ranks; i++)
		stream_open(&job->buckets[i], &job->pairs);
	stream_open(&job->run, &job->runs);
	job->found = true;
	if (resume_find(job) < 0 || (job->config.method == UMMR_METHOD_2S && twosided_find(job) < 0))
		return -1;
	job->config.inputs = NULL;
	job->config.info = NULL;
	job->config.storage = NULL;
	job->config.timeline = NULL;
	return 0;
}

static void close_job(ummr_job *job)
{
	bool through = job->state == STATE_DONE && !job->unwritten;

	for (int i = 0; job->buckets && i < job->ranks; i++)
		stream_close(&job->buckets[i]);
	stream_close(&job->run);
	reader_close(&job->walk);
	space_close(&job->pairs);
	space_close(&job->runs);
	status_close(&job->status);
	/* All ranks are here: closing windows is collective. */
	state_close(&job->acknowledged, job->found && (through || job->acknowledged.number == 0));
	input_close(&job->input);
	timeline_close(&job->timeline);
	checkpoint_close(job, through);
	lock_release(&job->lock);
	free(job->buckets);
	free(job->done);
	free(job->fresh);
	free(job->group);
	free(job->folder);
	MPI_Comm_free(&job->comm);
	free(job);
}

int ummr_create(MPI_Comm comm, const struct ummr_config *config, ummr_job **created)
{
	ummr_job *job = calloc(1, sizeof(*job));

	if (agree(comm, job ? 0 : fail(ENOMEM, "cannot create a job: no memory")) < 0) {
		free(job);
		return -1;
	}
	job->pairs.win = job->pairs.places = job->runs.win = job->runs.places = job->status.win = MPI_WIN_NULL;
	job->pairs.info = job->runs.info = MPI_INFO_NULL;
	job->lock.fd = -1;
	job->acknowledged.files[0] = job->acknowledged.files[1] = job->acknowledged.folder_fd = -1;
	MPI_Comm_dup(comm, &job->comm);
	MPI_Comm_rank(comm, &job->rank);
	MPI_Comm_size(comm, &job->ranks);
	if (prepare(job, config) < 0) {
		close_job(job);
		return fail_again();
	}
	*created = job;
	return 0;
}

/* ---- Running ---- */

int run_phase(ummr_job *job, int which, int (*phase)(ummr_job *job))
{
	int result;

	timeline_add(&job->timeline, which, EVENT_BEGIN);
	result = phase(job);
	timeline_add(&job->timeline, which, EVENT_END);
	return result;
}

static int run_phases(ummr_job *job)
{
	if (!job->all_reduced && run_phase(job, UMMR_PHASE_MAP, map_phase) < 0)
		return -1;
	if (!status_stopped(&job->status) && run_phase(job, UMMR_PHASE_REDUCE, reduce_phase) < 0)
		return -1;
	return status_stopped(&job->status) ? 0 : run_phase(job, UMMR_PHASE_COMBINE, combine_phase);
}

/* An error here is one everywhere. */
static int run_decoupled(ummr_job *job)
{
	int result = run_phases(job);

	/* Another rank may have failed: what this one has done need not be done again. */
	if (result == 0)
		result = map_end_sync(job, UMMR_PHASE_MAP);
	if (result < 0)
		status_stop(&job->status);
	return result;
}

void result_open(ummr_job *job)
{
	if (job->config.combine == UMMR_COMBINE_ON && job->rank > 0)
		stream_close(&job->run);
	reader_open_own(&job->walk, &job->run);
}

static void result_close(ummr_job *job)
{
	reader_close(&job->walk);
	stream_close(&job->run);
}

int ummr_run(ummr_job *job)
{
	int result;

	if (job->state == STATE_FAILED)
		return fail(EINVAL, "cannot run the job: it has failed. Try ummr_end() and another "
			    "job");
	if (job->state != STATE_NEW && job->state != STATE_DONE)
		return fail(EINVAL, "cannot run the job: it is already running, and one of its "
			    "functions called ummr_run()");
	result_close(job);
	job->unwritten = false;
	job->state = STATE_RUNNING;
	wait_for_all(job->comm);
	timeline_start(&job->timeline, job->comm);
	result = resume_begin(job);
	if (result == 0)
		result = agree(job->comm, job->config.method == UMMR_METHOD_2S ? twosided_run(job) : run_decoupled(job));
	if (timeline_write(&job->timeline, job->comm) < 0)
		result = -1;
	for (int i = 0; i < job->ranks; i++)
		stream_close(&job->buckets[i]);
	result_open(job);
	if (result == 0) {
		job->complete++;
		report_progress(job, UMMR_PHASE_DONE, 1, 1);
	}
	job->state = result == 0 ? STATE_DONE : STATE_FAILED;
	return result == 0 ? 0 : fail_again();
}

uint64_t ummr_runs(const ummr_job *job)
{
	return job->complete;
}

int ummr_end(ummr_job *job)
{
	if (job->state == STATE_MAPPING || job->state == STATE_RUNNING)
		return fail(EINVAL, "cannot end the job: it is running. Try ummr_end() when "
			    "ummr_run() has returned");
	/* Rank 0 may walk the result for long before it comes here. */
	wait_for_all(job->comm);
	close_job(job);
	return 0;
}

/* ---- The result ---- */

static int check_done(const ummr_job *job)
{
	if (job->state == STATE_DONE || (job->state == STATE_NEW && job->complete > 0))
		return 0;
	return fail(EINVAL, "cannot return the result: there is one only after ummr_run has "
		    "returned 0");
}

int ummr_next(ummr_job *job, struct ummr_bytes *key, struct ummr_bytes *value)
{
	struct pair p;
	int there;

	if (check_done(job) < 0)
		return -1;
	there = reader_next(&job->walk, &p);
	if (there > 0) {
		*key = (struct ummr_bytes){ p.key, p.head.key_size };
		*value = (struct ummr_bytes){ p.value, p.head.value_size };
	}
	return there;
}

int ummr_rewind(ummr_job *job)
{
	if (check_done(job) < 0)
		return -1;
	reader_rewind(&job->walk);
	return 0;
}

typedef int print_function(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value, void *arg);

static int cannot_write(FILE *out)
{
	return fail(errno ? errno : EIO, "cannot write the result: %s",
		    ferror(out) ? strerror(errno) : "the print function failed");
}

static int print_pairs(ummr_job *job, FILE *out, print_function *print)
{
	struct reader r;
	struct pair p;
	int there, result = 0;

	reader_open_own(&r, &job->run);
	while (result == 0 && (there = reader_next(&r, &p)) != 0) {
		struct ummr_bytes key = { p.key, p.head.key_size }, value = { p.value, p.head.value_size };

		if (there < 0)
			result = -1;
		else if (print(out, &key, &value, job->config.arg) != 0)
			result = cannot_write(out);
	}
	reader_close(&r);
	return result;
}

/* A run's pairs lie there as they are written. */
static int write_pairs(ummr_job *job, FILE *out, print_function *print)
{
	if (print)
		return print_pairs(job, out, print);
	return stream_write(&job->run, out) == 0 ? 0 : cannot_write(out);
}

static int write_part(ummr_job *job, const char *path, print_function *print)
{
	FILE *out = !path ? stdout : fopen(path, job->rank == 0 ? "we" : "ae");
	int result;

	if (!out)
		return fail(errno, "cannot write '%s': %s", path, strerror(errno));
	errno = 0;
	result = write_pairs(job, out, print);
	/* It may be unbuffered, and print need not look. */
	if (result == 0 && ferror(out))
		result = cannot_write(out);
	if ((path ? fclose(out) : fflush(out)) != 0 && result == 0)
		result = fail(errno, "cannot write '%s': %s", path ? path : "standard output",
			      strerror(errno));
	return result;
}

/* path: NULL, or as it is. Ranks take turns. Those that have no part, or come behind an error, pass the turn on. */
static int write_in_turns(ummr_job *job, const char *path, print_function *print)
{
	int result = 0, before = 0;
	bool has_part = job->rank == 0 || job->config.combine == UMMR_COMBINE_OFF;
	MPI_Request turn;

	if (job->rank > 0) {
		MPI_Irecv(&before, 1, MPI_INT, job->rank - 1, 0, job->comm, &turn);
		wait_for(&turn);
	}
	if (has_part && before == 0)
		result = write_part(job, path, print);
	before |= result;
	if (job->rank + 1 < job->ranks)
		MPI_Send(&before, 1, MPI_INT, job->rank + 1, 0, job->comm);
	return agree(job->comm, result);
}

/* Where rank 0 says. A file gets its name when it is complete. Pipes and devices are written as they are. */
static int write_file(ummr_job *job, const char *path, print_function *print)
{
	char unfinished[(path ? strlen(path) : 0) + sizeof(".unfinished")];
	struct stat st;
	int in_place = !path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)), result;

	wait_for_all(job->comm);
	MPI_Bcast(&in_place, 1, MPI_INT, 0, job->comm);
	if (in_place)
		return write_in_turns(job, path, print);
	snprintf(unfinished, sizeof(unfinished), "%s.unfinished", path);
	result = write_in_turns(job, unfinished, print);
	if (result == 0)
		result = agree(job->comm, job->rank == 0 && rename(unfinished, path) < 0
					  ? fail(errno, "cannot write '%s': %s", path,
						 strerror(errno)) : 0);
	if (result < 0 && job->rank == 0)
		unlink(unfinished);
	return result;
}

/* Parts in several files would not be the result. The others have no part where rank 0 has all of it. */
static int compare_paths(ummr_job *job, const char *path)
{
	uint64_t mine = path ? XXH3_64bits(path, strlen(path)) + 1 : 0, first = mine;
	MPI_Request request;

	if (job->config.combine == UMMR_COMBINE_ON)
		return 0;
	MPI_Ibcast(&first, 1, MPI_UINT64_T, 0, job->comm, &request);
	wait_for(&request);
	return agree(job->comm, mine == first ? 0 : fail(EINVAL, "cannot write the result: the "
			"path is '%s' here, and differs from that of rank 0",
			path ? path : "NULL"));
}

int ummr_write(ummr_job *job, const char *path, print_function *print)
{
	enum job_state before = job->state;
	int result;

	if (check_done(job) < 0)
		return -1;
	/* print cannot call this, nor what ends the job or runs it. */
	job->state = STATE_RUNNING;
	result = compare_paths(job, path);
	if (result == 0)
		result = write_file(job, path, print);
	job->state = before;
	job->unwritten = result < 0;
	return result == 0 ? 0 : fail_again();
}
