/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce: the pairs that all ranks have for this one, from its own and then from whoever has finished Map, into one table,
 * and from there, in order, into the rank's run.
 */
#include "mapreduce/job.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

static int add_pairs(ummr_job *job, struct reader *r)
{
	struct pair p;
	int there;

	while ((there = reader_next(r, &p)) > 0) {
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
		return fail(ENOMEM, "no memory to reduce the pairs of %d ranks", job->ranks);
	while (in < job->ranks && more >= 0 && !status_stopped(&job->status)) {
		report_progress(job, UMMR_PHASE_REDUCE, (uint64_t)in, (uint64_t)job->ranks);
		while ((more = reduce_finished(job, seen)) == 0 && !status_stopped(&job->status))
			status_wait(&job->status);
		in += more;
	}
	free(seen);
	return more < 0 ? -1 : 0;
}

static int write_run(ummr_job *job)
{
	struct entry **sorted = table_sorted(&job->table, job->config.order == UMMR_ORDER_DESCENDING);
	int result = sorted ? 0 : -1;

	for (uint64_t i = 0; result == 0 && i < job->table.entries; i++) {
		struct pair p = { sorted[i]->head, sorted[i]->key, sorted[i]->value };

		result = stream_append(&job->run, &p);
		serve_sometimes(job);
	}
	free(sorted);
	if (result == 0 && job->config.sync_tasks != UMMR_SYNC_NEVER)
		result = space_sync(&job->runs);
	return result;
}

int reduce_phase(ummr_job *job)
{
	int result = table_open(&job->table, job->config.reduce, job->config.arg);

	if (result == 0)
		result = reduce_all(job);
	if (result == 0)
		result = write_run(job);
	table_close(&job->table);
	return result;
}
