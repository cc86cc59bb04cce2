/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MapReduce as it is usually made with MPI, to compare the other method with: rank 0 gives out tasks in rounds by MPI_Scatter,
 * all ranks read those of a round together, map them, and report to rank 0 by MPI_Gather. When all tasks are done, one
 * all-to-all exchange brings each pair to its rank. Ranks reduce what they got, and send their runs up a tree.
 *
 * Pairs lie in plain memory. Tables, buckets, runs, and what is called for each pair are those of the other method. What each
 * rank does between two collective calls may fail there only; then its result is -1, and 1 at those that have heard of it.
 */
#include "mapreduce/twosided.h"

#include "mapreduce/checkpoint_2s.h"
#include "mapreduce/error.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* Of a run, in bytes. */
#define MESSAGE ((size_t)1 << 16)

void twosided_open(ummr_job *job)
{
	space_open_local(&job->pairs, job->rank, job->config.bucket_size, job->config.transfer_limit);
	space_open_local(&job->runs, job->rank, job->config.bucket_size, job->config.transfer_limit);
}

/* ---- Map ---- */

/* What rank 0 tells a rank. */
struct order {
	int64_t more;        /* 0: all tasks are done, or somebody has failed */
	int64_t task;        /* -1: none in this round */
	int64_t first, last; /* the files that the tasks of this round lie in */
};

/* Rank 0's: for the round that begins with this task. */
static void give_out(const ummr_job *job, struct order *orders, int64_t task)
{
	const struct input *in = &job->input;
	int64_t end = in->tasks - task < job->ranks ? in->tasks : task + job->ranks;
	int64_t first = 0, last = -1;

	if (task < end) {
		uint64_t bytes = (uint64_t)end * in->task_size;

		first = (int64_t)input_file_at(in, (uint64_t)task * in->task_size);
		last = (int64_t)input_file_at(in, (bytes < in->size ? bytes : in->size) - 1);
	}
	for (int i = 0; i < job->ranks; i++)
		orders[i] = (struct order){ task < end, task + i < end ? task + i : -1, first, last };
}

static int map_round(ummr_job *job, const struct order *order)
{
	int result = together_read(&job->input, job->comm, order->task, (uint64_t)order->first, (uint64_t)order->last);

	return result == 0 && order->task >= 0 ? map_input(job, order->task) : result;
}

static bool any_failed(const int *results, int ranks)
{
	for (int i = 0; i < ranks; i++)
		if (results[i] != 0)
			return true;
	return false;
}

/* orders and results: rank 0's, one for each rank. */
static int map_rounds(ummr_job *job, struct order *orders, int *results)
{
	struct order order;
	const int64_t first = job->checkpoint.tasks;
	int64_t task = first;
	uint32_t since_checkpoint = 0;
	int result = 0;

	for (;; task += job->ranks) {
		if (job->rank == 0)
			give_out(job, orders, task > first && any_failed(results, job->ranks) ? job->input.tasks : task);
		MPI_Scatter(orders, sizeof(order), MPI_BYTE, &order, sizeof(order), MPI_BYTE, 0, job->comm);
		report_progress(job, UMMR_PHASE_MAP, (uint64_t)(task < job->input.tasks ? task : job->input.tasks),
				(uint64_t)job->input.tasks);
		if (!order.more)
			return result;
		result = map_round(job, &order);
		if (job->checkpoint.pairs && ++since_checkpoint == job->config.sync_tasks) {
			since_checkpoint = 0;
			result = checkpoint_pairs(job, result, task + job->ranks);
		}
		MPI_Gather(&result, 1, MPI_INT, results, 1, MPI_INT, 0, job->comm);
	}
}

static int map_all(ummr_job *job)
{
	struct order *orders = malloc((size_t)job->ranks * sizeof(*orders));
	int *results = malloc((size_t)job->ranks * sizeof(*results)), result;

	result = orders && results ? table_open(&job->table, job->config.reduce, job->config.arg)
				   : fail(ENOMEM, "cannot assign tasks to %d ranks: no memory",
					  job->ranks);
	result = check_all(job->comm, result);
	if (result == 0 && job->checkpoint.tasks > 0)
		result = checkpoint_take_pairs(job);
	if (result == 0)
		result = map_rounds(job, orders, results);
	if (result == 0)
		result = map_empty_table(job);
	table_close(&job->table);
	free(orders);
	free(results);
	return check_all(job->comm, result);
}

/* ---- The exchange. Sizes are in words of 8 bytes, of which all pairs are made. ---- */

struct exchange {
	int *counts, *at;       /* what goes to each rank, and where that is */
	int *got_counts, *got_at;
	char *out, *in;
	uint64_t out_bytes, in_bytes;
};

static int too_much(uint64_t bytes)
{
	return fail(EFBIG, "cannot exchange %llu bytes of pairs: one exchange cannot transfer so "
		    "many. Try more ranks, or UMMR_METHOD_1S", (unsigned long long)bytes);
}

static int place(const int *counts, int *at, int ranks, uint64_t *bytes)
{
	uint64_t words = 0;

	for (int i = 0; i < ranks; i++) {
		if (words > INT_MAX)
			return too_much(words * 8);
		at[i] = (int)words;
		words += (uint64_t)counts[i];
	}
	*bytes = words * 8;
	return words > INT_MAX ? too_much(words * 8) : 0;
}

static int count_buckets(const ummr_job *job, struct exchange *x)
{
	x->counts = calloc(4 * (size_t)job->ranks, sizeof(*x->counts));
	if (!x->counts)
		return fail(ENOMEM, "cannot exchange the pairs of %d ranks: no memory", job->ranks);
	x->at = x->counts + job->ranks;
	x->got_counts = x->at + job->ranks;
	x->got_at = x->got_counts + job->ranks;
	for (int i = 0; i < job->ranks; i++) {
		uint64_t bytes = stream_size(&job->buckets[i]);

		if (bytes / 8 > INT_MAX)
			return too_much(bytes);
		x->counts[i] = (int)(bytes / 8);
	}
	return place(x->counts, x->at, job->ranks, &x->out_bytes);
}

static char *allocate(uint64_t bytes)
{
	char *memory = malloc(bytes + 1);

	if (!memory)
		fail(ENOMEM, "cannot exchange %llu bytes of pairs: no memory. Try more ranks, or "
		     "UMMR_METHOD_1S", (unsigned long long)bytes);
	return memory;
}

/* Buckets end here. */
static int pack(ummr_job *job, struct exchange *x)
{
	x->out = allocate(x->out_bytes);
	if (!x->out)
		return -1;
	for (int i = 0; i < job->ranks; i++) {
		stream_copy(&job->buckets[i], x->out + (size_t)x->at[i] * 8);
		stream_close(&job->buckets[i]);
	}
	return 0;
}

static int exchange(ummr_job *job, struct exchange *x)
{
	int result;

	result = check_all(job->comm, count_buckets(job, x));
	if (result != 0)
		return result;
	MPI_Alltoall(x->counts, 1, MPI_INT, x->got_counts, 1, MPI_INT, job->comm);
	result = place(x->got_counts, x->got_at, job->ranks, &x->in_bytes);
	if (result == 0)
		result = pack(job, x);
	if (result == 0)
		result = (x->in = allocate(x->in_bytes)) ? 0 : -1;
	result = check_all(job->comm, result);
	if (result != 0)
		return result;
	MPI_Alltoallv(x->out, x->counts, x->at, MPI_UINT64_T, x->in, x->got_counts, x->got_at, MPI_UINT64_T, job->comm);
	free(x->out);
	x->out = NULL;
	return 0;
}

/* ---- Reduce ---- */

static int reduce_pairs(ummr_job *job, const char *data, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes;) {
		struct pair p;

		at += pair_at(data + at, &p);
		if (table_add(&job->table, p.head.hash, p.key, p.head.key_size, p.value, p.head.value_size) < 0)
			return -1;
	}
	return 0;
}

static int reduce_ranks(ummr_job *job, const struct exchange *x)
{
	int result = table_open(&job->table, job->config.reduce, job->config.arg);

	for (int i = 0; result == 0 && i < job->ranks; i++) {
		report_progress(job, UMMR_PHASE_REDUCE, (uint64_t)i, (uint64_t)job->ranks);
		result = reduce_pairs(job, x->in + (size_t)x->got_at[i] * 8, (uint64_t)x->got_counts[i] * 8);
		timeline_add(&job->timeline, UMMR_PHASE_REDUCE, EVENT_STEP);
	}
	if (result == 0)
		result = sort_finish(job);
	table_close(&job->table);
	sort_close(job);
	return result;
}

static int reduce_all(ummr_job *job)
{
	struct exchange x = { 0 };
	int result = exchange(job, &x);

	if (result == 0)
		result = reduce_ranks(job, &x);
	free(x.in);
	free(x.out);
	free(x.counts);
	if (syncs(job))
		result = checkpoint_run(job, result);
	return check_all(job->comm, result);
}

/* ---- Combine ---- */

static void send_run(ummr_job *job, int to)
{
	uint64_t bytes = stream_size(&job->run);

	MPI_Send(&bytes, 1, MPI_UINT64_T, to, 0, job->comm);
	for (unsigned i = 0; i < job->run.blocks; i++) {
		size_t size = (size_t)job->run.block[i].used;

		for (size_t at = 0; at < size; at += MESSAGE)
			MPI_Send(job->run.memory[i] + at, (int)(size - at < MESSAGE ? size - at : MESSAGE), MPI_BYTE, to, 0,
				 job->comm);
	}
	stream_close(&job->run);
}

/* What there is no memory for is received all the same: the sender waits for that. */
static int receive_run(ummr_job *job, int from, struct stream *run)
{
	char message[MESSAGE];
	uint64_t bytes;
	int size, result = 0;

	MPI_Recv(&bytes, 1, MPI_UINT64_T, from, 0, job->comm, MPI_STATUS_IGNORE);
	for (; bytes > 0; bytes -= (uint64_t)size) {
		MPI_Status status;

		MPI_Recv(message, sizeof(message), MPI_BYTE, from, 0, job->comm, &status);
		MPI_Get_count(&status, MPI_BYTE, &size);
		if (result == 0)
			result = stream_append_bytes(run, message, (size_t)size);
	}
	return result;
}

static int combine_with(ummr_job *job, int partner)
{
	struct reader reader;
	struct stream theirs;
	int result;

	stream_open(&theirs, &job->runs);
	result = receive_run(job, partner, &theirs);
	reader_open_own(&reader, &theirs);
	if (result == 0)
		result = combine_run(job, &reader);
	stream_close(&theirs);
	return result;
}

/* The tree of the other method. */
static int combine_all(ummr_job *job)
{
	int result = 0;

	for (int step = 1; job->config.combine == UMMR_COMBINE_ON && step < job->ranks; step *= 2) {
		if (job->rank & step) {
			send_run(job, job->rank - step);
			break;
		}
		if (job->rank + step >= job->ranks)
			continue;
		if (combine_with(job, job->rank + step) < 0)
			result = -1;
		timeline_add(&job->timeline, UMMR_PHASE_COMBINE, EVENT_STEP);
	}
	return result;
}

/* ---- All of it ---- */

static int combine_checked(ummr_job *job)
{
	return check_all(job->comm, combine_all(job));
}

int twosided_find(ummr_job *job)
{
	int result = checkpoint_find(job);

	/* The result of the last complete run only has to be combined again. */
	if (result == 0 && job->complete > 0)
		result = checkpoint_take_run(job, job->complete);
	if (result == 0 && job->complete > 0)
		result = combine_checked(job);
	result = agree(job->comm, result);
	if (result == 0 && job->complete > 0)
		result_open(job);
	return result;
}

int twosided_run(ummr_job *job)
{
	int result;

	if (job->checkpoint.reduced) {
		result = checkpoint_take_run(job, job->acknowledged.run);
	} else {
		result = run_phase(job, UMMR_PHASE_MAP, map_all);
		if (result == 0)
			result = run_phase(job, UMMR_PHASE_REDUCE, reduce_all);
	}
	job->checkpoint.reduced = false;
	job->checkpoint.tasks = 0;
	return result == 0 ? run_phase(job, UMMR_PHASE_COMBINE, combine_all) : result;
}
