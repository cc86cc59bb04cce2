/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/result.h"

#include "mapreduce/error.h"
#include "mapreduce/wait.h"
#include "mapreduce/work.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void result_open(ummr_job *job)
{
	struct work *w = job->work;

	if (job->config.combine == UMMR_COMBINE_ON && job->rank > 0)
		stream_close(&w->run);
	reader_open_local(&job->result->reader, &w->run);
}

void result_close(ummr_job *job)
{
	reader_close(&job->result->reader);
	stream_close(&job->work->run);
}

/* ---- Reading ---- */

static int check_done(const ummr_job *job)
{
	if (job->state == JOB_DONE || (job->state == JOB_NEW && job->complete_runs > 0))
		return 0;
	return set_error(EINVAL, "cannot return the result: there is one only after ummr_run has "
			 "returned 0");
}

int ummr_next(ummr_job *job, struct ummr_bytes *key, struct ummr_bytes *value)
{
	struct pair p;
	int found;

	if (check_done(job) < 0)
		return -1;
	found = reader_next(&job->result->reader, &p);
	if (found > 0) {
		*key = (struct ummr_bytes){ p.key, p.header.key_size };
		*value = (struct ummr_bytes){ p.value, p.header.value_size };
	}
	return found;
}

int ummr_rewind(ummr_job *job)
{
	if (check_done(job) < 0)
		return -1;
	reader_rewind(&job->result->reader);
	return 0;
}

/* ---- Writing ---- */

typedef int print_function(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value,
			   void *arg);

static int report_write_failure(FILE *out)
{
	return set_error(errno ? errno : EIO, "cannot write the result: %s",
			 ferror(out) ? strerror(errno) : "the print function failed");
}

static int print_pairs(ummr_job *job, FILE *out, print_function *print)
{
	struct reader r;
	struct pair p;
	int found, result = 0;

	reader_open_local(&r, &job->work->run);
	while (result == 0 && (found = reader_next(&r, &p)) != 0) {
		struct ummr_bytes key = { p.key, p.header.key_size };
		struct ummr_bytes value = { p.value, p.header.value_size };

		if (found < 0)
			result = -1;
		else if (print(out, &key, &value, job->config.arg) != 0)
			result = report_write_failure(out);
	}
	reader_close(&r);
	return result;
}

/* Without a print function, the file has the bytes of the stream. */
static int write_pairs(ummr_job *job, FILE *out, print_function *print)
{
	if (print)
		return print_pairs(job, out, print);
	return stream_write(&job->work->run, out) == 0 ? 0 : report_write_failure(out);
}

static int write_part(ummr_job *job, const char *path, print_function *print)
{
	FILE *out = !path ? stdout : fopen(path, job->rank == 0 ? "we" : "ae");
	int result;

	if (!out)
		return set_error(errno, "cannot write '%s': %m", path);
	errno = 0;
	result = write_pairs(job, out, print);
	/* An error of an unbuffered file is not repeated by fclose(3), and print may ignore it. */
	if (result == 0 && ferror(out))
		result = report_write_failure(out);
	if ((path ? fclose(out) : fflush(out)) != 0 && result == 0)
		result = set_error(errno, "cannot write '%s': %m", path ? path : "standard output");
	return result;
}

/* Writes the parts of all ranks, one after the other; collective. A rank without a part, and a rank
 * that follows one with an error, only passes the turn on. */
static int write_in_turns(ummr_job *job, const char *path, print_function *print)
{
	bool has_part = job->rank == 0 || job->config.combine == UMMR_COMBINE_OFF;
	int result = 0, earlier = 0;
	MPI_Request turn;

	if (job->rank > 0) {
		MPI_Irecv(&earlier, 1, MPI_INT, job->rank - 1, 0, job->comm, &turn);
		wait_for_request(&turn);
	}
	if (has_part && earlier == 0)
		result = write_part(job, path, print);
	earlier |= result;
	if (job->rank + 1 < job->ranks)
		MPI_Send(&earlier, 1, MPI_INT, job->rank + 1, 0, job->comm);
	return agree_result(job->comm, result);
}

/* Writes to a file of another name, which is renamed when it is complete; collective. The standard
 * output, pipes and devices are written directly. Rank 0 decides. */
static int write_file(ummr_job *job, const char *path, print_function *print)
{
	char unfinished[(path ? strlen(path) : 0) + sizeof(".unfinished")];
	struct stat st;
	int is_direct = !path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)), result;

	wait_for_all_ranks(job->comm);
	MPI_Bcast(&is_direct, 1, MPI_INT, 0, job->comm);
	if (is_direct)
		return write_in_turns(job, path, print);
	snprintf(unfinished, sizeof(unfinished), "%s.unfinished", path);
	result = write_in_turns(job, unfinished, print);
	if (result == 0) {
		if (job->rank == 0 && rename(unfinished, path) < 0)
			result = set_error(errno, "cannot write '%s': %m", path);
		result = agree_result(job->comm, result);
	}
	if (result < 0 && job->rank == 0)
		unlink(unfinished);
	return result;
}

/* All ranks must write to the same file. With UMMR_COMBINE_ON, only the path of rank 0 counts. */
static int compare_paths(ummr_job *job, const char *path)
{
	uint64_t mine = path ? XXH3_64bits(path, strlen(path)) + 1 : 0, of_rank_0 = mine;
	MPI_Request request;
	int result = 0;

	if (job->config.combine == UMMR_COMBINE_ON)
		return 0;
	MPI_Ibcast(&of_rank_0, 1, MPI_UINT64_T, 0, job->comm, &request);
	wait_for_request(&request);
	if (mine != of_rank_0)
		result = set_error(EINVAL, "cannot write the result: the path is '%s' here, and "
				   "differs from that of rank 0", path ? path : "NULL");
	return agree_result(job->comm, result);
}

int ummr_write(ummr_job *job, const char *path, print_function *print)
{
	enum job_state state = job->state;
	int result;

	if (check_done(job) < 0)
		return -1;
	/* The print function may not call ummr_write, ummr_run or ummr_end. */
	job->state = JOB_RUNNING;
	result = compare_paths(job, path);
	if (result == 0)
		result = write_file(job, path, print);
	job->state = state;
	job->result->has_write_failed = result < 0;
	return result == 0 ? 0 : restore_error();
}
