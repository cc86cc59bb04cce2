/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Map with Local Reduce. Each rank has an equal part of the tasks, in order, and a counter of which is the next. All take
 * tasks by adding one to such a counter: a rank first from its own, then, when that is through, from those of others.
 * Pairs are reduced in the table, which goes to the buckets when it is full, and when they are marked: at syncs, and in the end.
 *
 * A mark says how far the buckets go when all tasks that were mapped are in them, as a whole. What comes behind it can be taken
 * back: when map fails, it is, for the table knows nothing of tasks. The tasks behind the mark are mapped again then, with a mark
 * after each, until the one that fails has failed three times.
 */
#include "mapreduce/job.h"

#include "mapreduce/clock.h"
#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define TRIES 3

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

static int add_value(ummr_job *job, uint64_t hash, const void *key, size_t key_size, const void *value, size_t value_size)
{
	struct member *m;
	size_t size;

	if (job->config.reduce)
		return table_add(&job->table, hash, key, key_size, value, value_size);
	size = sizeof(*m) + padded(value_size);
	if (size > job->group_room) {
		char *group = realloc(job->group, size);

		if (!group)
			return fail(ENOMEM, "cannot store a value of %zu bytes: no memory",
				    value_size);
		job->group = group;
		job->group_room = size;
	}
	m = (struct member *)job->group;
	m->size = value_size;
	if (value_size > 0)
		memcpy(m->data, value, value_size);
	memset(m->data + value_size, 0, padded(value_size) - value_size);
	return table_add(&job->table, hash, key, key_size, m, size);
}

int ummr_emit(ummr_job *job, const void *key, size_t key_size, const void *value, size_t value_size)
{
	int result;

	if (job->state != STATE_MAPPING)
		return fail(EINVAL, "cannot emit a pair: ummr_emit is only for map functions while "
			    "they run");
	if (key_size > PTRDIFF_MAX / 2 || value_size > PTRDIFF_MAX / 2 || (!key && key_size > 0) || (!value && value_size > 0))
		return job->emit_failed = fail(EINVAL, "cannot emit a key of %zu bytes at %p and a "
				"value of %zu bytes at %p: a size is too large, or a pointer is "
				"NULL", key_size, key, value_size, value);
	/* Nor may reduce call this. */
	job->state = STATE_RUNNING;
	result = add_value(job, XXH3_64bits_withSeed(key, key_size, job->config.seed), key, key_size, value, value_size);
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

/* The next task of this rank's part or, beginning with `*from`, of another's; -1: all are taken. Those that an earlier job has
 * acknowledged are passed over. */
static int64_t next_task(ummr_job *job, int *from)
{
	while (*from < job->ranks) {
		int rank = (job->rank + *from) % job->ranks;
		int64_t task = first_task(job, rank) + status_add(&job->status, rank, STATUS_NEXT, 1);

		if (task >= first_task(job, rank + 1))
			++*from;
		else if (!state_has_task(job->done, task))
			return task;
	}
	return -1;
}

static int call_map(const struct ummr_task *task, void *arg)
{
	ummr_job *job = arg;

	job->state = STATE_MAPPING;
	job->map_failed = job->config.map(job, task, job->config.arg);
	job->state = STATE_RUNNING;
	if (job->emit_failed)
		return -1;
	return job->map_failed == 0 ? 0 : fail(ECANCELED, "cannot map '%s': the map function has "
			"failed %d times for the %zu bytes at %llu", task->path, TRIES, task->size,
			(unsigned long long)task->offset);
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

/* ---- Marks ---- */

static int add_fresh(ummr_job *job, int64_t task)
{
	if (job->fresh_count == job->fresh_room) {
		int64_t room = 2 * job->fresh_room + 16, *fresh = realloc(job->fresh, (size_t)room * sizeof(*fresh));

		if (!fresh)
			return fail(ENOMEM, "cannot list %lld tasks: no memory", (long long)room);
		job->fresh = fresh;
		job->fresh_room = room;
	}
	job->fresh[job->fresh_count++] = task;
	return 0;
}

static int mark(ummr_job *job)
{
	if (map_empty_table(job) < 0)
		return -1;
	for (int i = 0; i < job->ranks; i++)
		stream_save(&job->buckets[i], &job->acknowledged.buckets[i]);
	while (job->fresh_count > 0)
		state_add_task(&job->acknowledged, job->fresh[--job->fresh_count]);
	return 0;
}

static void back_to_mark(ummr_job *job)
{
	table_clear(&job->table);
	for (int i = 0; i < job->ranks; i++)
		stream_cut(&job->buckets[i], &job->acknowledged.buckets[i]);
}

/* ---- Syncs: they begin behind a task, and end behind the next one, which storage works beside. ---- */

/* Of the time, at most: a sync every SHARE times as long as the last one took. */
#define SHARE 25
/* The first one is not known: it comes after a second. */
#define FIRST (1.0 / SHARE)

static bool is_due(const ummr_job *job)
{
	if (!syncs(job))
		return false;
	if (job->config.sync_tasks > 0)
		return job->pace.tasks >= job->config.sync_tasks;
	return clock_seconds() - job->pace.end >= SHARE * job->pace.took;
}

/* The buckets go as far as the mark. */
static int begin_sync(ummr_job *job)
{
	double start = clock_seconds();

	if (mark(job) < 0)
		return -1;
	if (!syncs(job))
		return 0;
	for (int i = 0; i < job->ranks; i++)
		if (stream_start_write(&job->buckets[i]) < 0)
			return -1;
	job->unsynced = true;
	job->pace.tasks = 0;
	job->pace.end = clock_seconds();
	job->pace.took = job->pace.end - start;
	return 0;
}

int map_end_sync(ummr_job *job, int phase)
{
	double start = clock_seconds();

	if (!job->unsynced)
		return 0;
	if (space_sync(&job->pairs) < 0 || state_write(&job->acknowledged) < 0)
		return -1;
	job->unsynced = false;
	job->pace.end = clock_seconds();
	job->pace.took += job->pace.end - start;
	timeline_add(&job->timeline, phase, EVENT_SYNC);
	return 0;
}

/* ---- Mapping ---- */

/* With a mark before it and one behind it. */
static int map_alone(ummr_job *job, int64_t task, int tries)
{
	while (job->map_failed = 0, input_map(&job->input, task, call_map, job) < 0) {
		if (job->emit_failed || !job->map_failed || --tries == 0)
			return -1;
		back_to_mark(job);
	}
	return add_fresh(job, task) < 0 ? -1 : mark(job);
}

/* The task has failed once. If it fails for good, what was done before it is not lost. */
static int map_again(ummr_job *job, int64_t task)
{
	int64_t count = job->fresh_count, *before = job->fresh;
	int result = map_end_sync(job, UMMR_PHASE_MAP);

	job->fresh = NULL;
	job->fresh_count = job->fresh_room = 0;
	back_to_mark(job);
	for (int64_t i = 0; i < count && result == 0; i++)
		result = map_alone(job, before[i], TRIES);
	free(before);
	return result < 0 ? -1 : map_alone(job, task, TRIES - 1);
}

int map_input(ummr_job *job, int64_t task)
{
	job->map_failed = 0;
	if (input_map(&job->input, task, call_map, job) == 0) {
		if (add_fresh(job, task) < 0)
			return -1;
	} else if (job->emit_failed || !job->map_failed || map_again(job, task) < 0) {
		return -1;
	}
	timeline_add(&job->timeline, UMMR_PHASE_MAP, EVENT_STEP);
	return 0;
}

static int map_task(ummr_job *job, int64_t task)
{
	if (map_input(job, task) < 0)
		return -1;
	job->pace.tasks++;
	if (map_end_sync(job, UMMR_PHASE_MAP) < 0 || (is_due(job) && begin_sync(job) < 0))
		return -1;
	status_add(&job->status, job->rank, STATUS_DONE, 1);
	report_tasks(job);
	status_serve(&job->status);
	return 0;
}

/* What is left in the table, and what others have to know to read the buckets. They need not be durable for that: who has
 * reduced a task's pairs has them, also if it is mapped again. */
static int finish(ummr_job *job)
{
	if (map_end_sync(job, UMMR_PHASE_MAP) < 0 || begin_sync(job) < 0)
		return -1;
	for (int i = 0; i < job->ranks; i++)
		stream_publish(&job->buckets[i], (unsigned)i);
	status_advance(&job->status, PHASE_MAP, PHASE_MAPPED);
	return 0;
}

int map_phase(ummr_job *job)
{
	int64_t task;
	int from = 0, result;

	job->pace = (struct pace){ .end = clock_seconds(), .took = FIRST };
	result = table_open(&job->table, job->config.reduce, job->config.arg);

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
