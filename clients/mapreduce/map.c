/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Map with Local Reduce. Each rank has an equal part of the tasks, in order, and a counter of which is the next. All take
 * tasks by adding one to such a counter: a rank first from its own, then, when that is through, from those of others.
 * Pairs are reduced in the table, which goes to the buckets when it is full, at syncs, and in the end.
 */
#include "mapreduce/job.h"

#include "mapreduce/error.h"

#include <errno.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int map_empty_table(ummr_job *job)
{
	for (struct entry *e = job->table.first; e; e = e->next) {
		struct pair p = { e->head, e->key, e->value };

		if (stream_append(&job->buckets[rank_of(e->head.hash, job->ranks)], &p) < 0)
			return -1;
	}
	table_clear(&job->table);
	return 0;
}

int ummr_emit(ummr_job *job, const void *key, size_t key_size, const void *value, size_t value_size)
{
	int result;

	if (job->state != STATE_MAPPING)
		return fail(EINVAL, "ummr_emit is for map functions, while they run");
	/* Nor may reduce call this. */
	job->state = STATE_RUNNING;
	result = table_add(&job->table, XXH3_64bits_withSeed(key, key_size, job->config.seed), key, key_size, value, value_size);
	job->state = STATE_MAPPING;
	if (result < 0)
		return job->emit_failed = -1;
	serve_sometimes(job);
	if (job->table.bytes > job->config.table_size && map_empty_table(job) < 0)
		return job->emit_failed = -1;
	return 0;
}

/* ---- Tasks ---- */

static int64_t first_task(const ummr_job *job, int rank)
{
	return job->input.tasks / job->ranks * rank + job->input.tasks % job->ranks * rank / job->ranks;
}

/* The next task of this rank's part or, beginning with `*from`, of another's; -1: all are taken. */
static int64_t next_task(ummr_job *job, int *from)
{
	for (; *from < job->ranks; ++*from) {
		int rank = (job->rank + *from) % job->ranks;
		int64_t task = first_task(job, rank) + status_add(&job->status, rank, STATUS_NEXT, 1);

		if (task < first_task(job, rank + 1))
			return task;
	}
	return -1;
}

static int call_map(const struct ummr_task *task, void *arg)
{
	ummr_job *job = arg;
	int result;

	job->state = STATE_MAPPING;
	result = job->config.map(job, task, job->config.arg);
	job->state = STATE_RUNNING;
	if (job->emit_failed)
		return -1;
	return result == 0 ? 0 : fail(ECANCELED, "%s: the map function has failed for the %zu bytes at %llu", task->path,
				      task->size, (unsigned long long)task->offset);
}

static void report_tasks(ummr_job *job)
{
	uint64_t done = 0;

	if (!job->config.progress)
		return;
	for (int i = 0; i < job->ranks; i++)
		done += (uint64_t)status_get(&job->status, i, STATUS_DONE);
	report_progress(job, UMMR_PHASE_MAP, done, (uint64_t)job->input.tasks);
}

static int sync_pairs(ummr_job *job)
{
	job->since_sync = 0;
	if (map_empty_table(job) < 0 || space_sync(&job->pairs) < 0)
		return -1;
	timeline_add(&job->timeline, UMMR_PHASE_MAP, EVENT_SYNC);
	return 0;
}

int map_input(ummr_job *job, int64_t task)
{
	if (input_map(&job->input, task, call_map, job) < 0)
		return -1;
	timeline_add(&job->timeline, UMMR_PHASE_MAP, EVENT_STEP);
	return 0;
}

static int map_task(ummr_job *job, int64_t task)
{
	if (map_input(job, task) < 0)
		return -1;
	if (job->pairs.file && job->config.sync_tasks != UMMR_SYNC_NEVER &&
	    ++job->since_sync == job->config.sync_tasks && sync_pairs(job) < 0)
		return -1;
	status_add(&job->status, job->rank, STATUS_DONE, 1);
	report_tasks(job);
	status_serve(&job->status);
	return 0;
}

/* What is left in the table, and what others have to know to read the buckets. */
static int finish(ummr_job *job)
{
	if (job->since_sync > 0 ? sync_pairs(job) < 0 : map_empty_table(job) < 0)
		return -1;
	for (int i = 0; i < job->ranks; i++)
		stream_publish(&job->buckets[i], (unsigned)i);
	status_advance(&job->status, PHASE_MAP, PHASE_MAPPED);
	return 0;
}

int map_phase(ummr_job *job)
{
	int64_t task;
	int from = 0, result = table_open(&job->table, job->config.reduce, job->config.arg);

	report_tasks(job);
	while (result == 0 && !status_stopped(&job->status) && (task = next_task(job, &from)) >= 0) {
		if (task + 1 < job->input.tasks)
			input_expect(&job->input, task + 1);
		result = map_task(job, task);
	}
	if (result == 0)
		result = finish(job);
	table_close(&job->table);
	return result;
}
