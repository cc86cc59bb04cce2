/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce: the pairs that all ranks have for this one, from its own and then from whoever has finished Map, into a table,
 * and from there, in order, into the rank's run.
 */
#include "mapreduce/job.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* The record says that this run has begun, at least, before the result of the one before the last goes: see state.h. */
int reduce_begin_results(ummr_job *job)
{
	if (job->results_begun)
		return 0;
	job->results_begun = true;
	if (map_end_sync(job, UMMR_PHASE_REDUCE) < 0)
		return -1;
	if (job->runs.file)
		unlink(job->runs.file);
	return 0;
}

static int add_pairs(ummr_job *job, struct reader *r)
{
	uint64_t room = job->config.table_size > job->config.transfer_limit ? job->config.table_size : job->config.transfer_limit;
	struct pair p;
	int there;

	while ((there = reader_next(r, &p)) > 0) {
		if (job->table.bytes > room && (reduce_begin_results(job) < 0 || sort_table(job) < 0))
			return -1;
		if (table_add(&job->table, p.head.hash, p.key, p.head.key_size, p.value, p.head.value_size) < 0)
			return -1;
		serve_sometimes(job);
	}
	return there;
}

static int reduce_rank(ummr_job *job, int rank)
{
	struct reader r;
	int result = 0;

	if (rank == job->rank)
		reader_open_own(&r, &job->buckets[rank]);
	else
		result = reader_open(&r, &job->pairs, rank, (unsigned)job->rank);
	if (result == 0)
		result = add_pairs(job, &r);
	reader_close(&r);
	return result;
}

/* seen: whose pairs are in. 1: another's are now; 0: nobody else has finished yet. */
static int reduce_finished(ummr_job *job, char *seen)
{
	int any = 0;

	for (int i = 0; i < job->ranks; i++) {
		int rank = (job->rank + i) % job->ranks;

		if (seen[rank] || status_get(&job->status, rank, STATUS_PHASE) < PHASE_MAPPED)
			continue;
		if (reduce_rank(job, rank) < 0)
			return -1;
		timeline_add(&job->timeline, UMMR_PHASE_REDUCE, EVENT_STEP);
		seen[rank] = 1;
		any++;
		status_serve(&job->status);
	}
	return any;
}

static int reduce_all(ummr_job *job)
{
	char *seen = calloc((size_t)job->ranks, 1);
	int in = 0, more = 0;

	if (!seen)
		return fail(ENOMEM, "cannot reduce the pairs of %d ranks: no memory", job->ranks);
	while (in < job->ranks && more >= 0 && !status_stopped(&job->status)) {
		report_progress(job, UMMR_PHASE_REDUCE, (uint64_t)in, (uint64_t)job->ranks);
		while ((more = reduce_finished(job, seen)) == 0 && !status_stopped(&job->status))
			status_wait(&job->status);
		in += more;
	}
	free(seen);
	return more < 0 ? -1 : 0;
}

/* The run is durable, and the rank does not reduce again. */
static int acknowledge(ummr_job *job)
{
	struct state *s = &job->acknowledged;

	if (!syncs(job))
		return 0;
	if (space_sync(&job->runs) < 0)
		return -1;
	stream_save(&job->run, &s->runs[s->run % 2]);
	job->run.kept = true;
	s->reduced = true;
	return state_write(s);
}

int reduce_phase(ummr_job *job)
{
	int result;

	if (job->acknowledged.reduced)
		return 0;
	result = table_open(&job->table, job->config.reduce, job->config.arg);
	if (result == 0)
		result = reduce_all(job);
	if (result == 0 && !status_stopped(&job->status) && (result = reduce_begin_results(job)) == 0)
		result = sort_finish(job);
	table_close(&job->table);
	sort_close(job);
	if (result == 0 && !status_stopped(&job->status))
		result = acknowledge(job);
	return result;
}
