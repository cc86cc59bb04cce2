/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each rank has an equal part of the tasks, in order, and a counter of the tasks that were taken. A
 * rank takes a task by incrementing a counter: first its own, and then those of other ranks. Pairs
 * are reduced in a hash table. Its contents go to the buckets when it is full, and at checkpoints.
 *
 * A checkpoint records the length of the buckets at a moment when they have all mapped tasks
 * entirely. Pairs behind it can be dropped. This happens when a map function fails, because the
 * table does not know the task of a pair: the tasks since the checkpoint are mapped again, with a
 * checkpoint after each one, until one of them has failed MAX_TRIES times.
 */
#include "mapreduce/phases.h"

#include "mapreduce/error.h"
#include "mapreduce/input.h"
#include "mapreduce/status.h"
#include "mapreduce/table.h"
#include "mapreduce/timeline.h"
#include "mapreduce/work.h"

#include <errno.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAX_TRIES 3

struct mapper {
	struct table table;     /* pairs that are not in the buckets */
	int64_t *tasks;         /* tasks that were mapped since the last checkpoint */
	int64_t count;          /* number of these tasks */
	int64_t capacity;       /* number of tasks that fit into memory */
	char *group;            /* a value as a group, for jobs with reduce_all */
	size_t group_capacity;  /* bytes of memory of the group */
	int map_result;         /* result of the map function for the current task */
	bool has_emit_failed;   /* whether a pair could not be stored, even if map ignores it */
};

/* ---- Emitting pairs ---- */

static int empty_table(ummr_job *job)
{
	struct table *table = &job->mapper->table;

	for (struct entry *e = table->oldest; e; e = e->next) {
		struct pair p = { e->header, e->key, e->value };
		int rank = rank_of_hash(e->header.hash, job->ranks);

		if (stream_append(&job->work->buckets[rank], &p) < 0)
			return -1;
	}
	table_clear(table);
	return 0;
}

/* Adds the value as a group with one member. */
static int add_group(struct mapper *m, const struct ummr_header *h, const void *key,
		     const void *value)
{
	size_t size = sizeof(struct group_member) + padded_size(h->value_size);
	struct group_member *member;

	if (size > m->group_capacity) {
		char *group = realloc(m->group, size);

		if (!group)
			return set_error(ENOMEM, "cannot store a value of %zu bytes: no memory",
					 (size_t)h->value_size);
		m->group = group;
		m->group_capacity = size;
	}
	member = (struct group_member *)m->group;
	member->size = h->value_size;
	if (h->value_size > 0)
		memcpy(member->data, value, h->value_size);
	memset(member->data + h->value_size, 0, padded_size(h->value_size) - h->value_size);
	return table_add(&m->table, h->hash, key, h->key_size, member, size);
}

static int add_pair(ummr_job *job, const struct ummr_header *h, const void *key, const void *value)
{
	struct mapper *m = job->mapper;
	int result;

	/* The reduce function may not call ummr_emit. */
	job->state = JOB_RUNNING;
	result = job->config.reduce
		 ? table_add(&m->table, h->hash, key, h->key_size, value, h->value_size)
		 : add_group(m, h, key, value);
	job->state = JOB_MAPPING;
	if (result < 0)
		return -1;
	status_serve_sometimes(job->status);
	return m->table.bytes > job->config.table_size ? empty_table(job) : 0;
}

int ummr_emit(ummr_job *job, const void *key, size_t key_size, const void *value,
	      size_t value_size)
{
	struct ummr_header h = { 0, key_size, value_size };

	if (job->state != JOB_MAPPING)
		return set_error(EINVAL, "cannot emit a pair: ummr_emit is only for map functions "
				 "while they run");
	if (key_size > PTRDIFF_MAX / 2 || value_size > PTRDIFF_MAX / 2 || (!key && key_size > 0) ||
	    (!value && value_size > 0)) {
		job->mapper->has_emit_failed = true;
		return set_error(EINVAL, "cannot emit a key of %zu bytes at %p and a value of %zu "
				 "bytes at %p: a size is too large, or a pointer is NULL", key_size,
				 key, value_size, value);
	}
	h.hash = XXH3_64bits(key, key_size);
	if (add_pair(job, &h, key, value) == 0)
		return 0;
	job->mapper->has_emit_failed = true;
	return -1;
}

/* ---- Tasks ---- */

/* Returns the number of the first task of a rank's part. */
static int64_t first_task(const ummr_job *job, int rank)
{
	int64_t tasks = job->input->tasks;

	return tasks / job->ranks * rank + tasks % job->ranks * rank / job->ranks;
}

/* Takes the next task that no earlier job has acknowledged. Returns -1 if all are taken. *distance
 * is the distance to the rank whose counter is used: 0 before the first call. */
static int64_t take_task(ummr_job *job, int *distance)
{
	while (*distance < job->ranks) {
		int rank = (job->rank + *distance) % job->ranks;
		int64_t task = first_task(job, rank) +
			       status_add(job->status, rank, STATUS_NEXT, 1);

		if (task >= first_task(job, rank + 1))
			++*distance;
		else if (!record_has_task(job->work->done_tasks, task))
			return task;
	}
	return -1;
}

static void report_tasks(ummr_job *job)
{
	uint64_t done = 0;

	if (!job->config.progress)
		return;
	for (int i = 0; i < job->ranks; i++)
		done += (uint64_t)status_get(job->status, i, STATUS_DONE);
	report_progress(job, UMMR_PHASE_MAP, done, (uint64_t)job->input->tasks);
}

/* ---- Checkpoints in the buckets ---- */

static int add_mapped_task(struct mapper *m, int64_t task)
{
	if (m->count == m->capacity) {
		int64_t capacity = 2 * m->capacity + 16;
		int64_t *tasks = realloc(m->tasks, (size_t)capacity * sizeof(*tasks));

		if (!tasks)
			return set_error(ENOMEM, "cannot list %lld tasks: no memory",
					 (long long)capacity);
		m->tasks = tasks;
		m->capacity = capacity;
	}
	m->tasks[m->count++] = task;
	return 0;
}

static int make_checkpoint(ummr_job *job)
{
	struct mapper *m = job->mapper;
	struct record *r = &job->work->record;

	if (empty_table(job) < 0)
		return -1;
	for (int i = 0; i < job->ranks; i++)
		stream_save(&job->work->buckets[i], &r->buckets[i]);
	while (m->count > 0)
		record_add_task(r, m->tasks[--m->count]);
	return 0;
}

static void return_to_checkpoint(ummr_job *job)
{
	table_clear(&job->mapper->table);
	for (int i = 0; i < job->ranks; i++)
		stream_truncate(&job->work->buckets[i], &job->work->record.buckets[i]);
}

static int start_sync(ummr_job *job)
{
	double start = clock_seconds();

	return make_checkpoint(job) < 0 ? -1 : work_start_sync(job, start);
}

/* ---- Mapping ---- */

static int call_map(const struct ummr_task *task, void *arg)
{
	ummr_job *job = arg;
	struct mapper *m = job->mapper;

	job->state = JOB_MAPPING;
	m->map_result = job->config.map(job, task, job->config.arg);
	job->state = JOB_RUNNING;
	if (m->has_emit_failed)
		return -1;
	if (m->map_result == 0)
		return 0;
	return set_error(ECANCELED, "cannot map '%s': the map function has failed %d times for the "
			 "%zu bytes at %llu", task->path, MAX_TRIES, task->size,
			 (unsigned long long)task->offset);
}

/* Returns 1 if the map function has failed, and -1 after other errors. */
static int map_input(ummr_job *job, int64_t task)
{
	struct mapper *m = job->mapper;

	m->map_result = 0;
	if (input_map(job->input, task, call_map, job) == 0)
		return add_mapped_task(m, task);
	return m->map_result != 0 && !m->has_emit_failed ? 1 : -1;
}

/* Maps a task that follows a checkpoint, and makes another checkpoint. */
static int map_alone(ummr_job *job, int64_t task, int tries)
{
	int result;

	while ((result = map_input(job, task)) == 1 && --tries > 0)
		return_to_checkpoint(job);
	return result == 0 ? make_checkpoint(job) : -1;
}

/* Handles the first failure of a task: maps all tasks since the last checkpoint again. */
static int map_again(ummr_job *job, int64_t task)
{
	struct mapper *m = job->mapper;
	int64_t count = m->count, *tasks = m->tasks;
	/* Earlier tasks are made durable, in case this one fails for good. */
	int result = work_finish_sync(job, UMMR_PHASE_MAP);

	m->tasks = NULL;
	m->count = m->capacity = 0;
	return_to_checkpoint(job);
	for (int64_t i = 0; i < count && result == 0; i++)
		result = map_alone(job, tasks[i], MAX_TRIES);
	free(tasks);
	return result < 0 ? -1 : map_alone(job, task, MAX_TRIES - 1);
}

static int map_task(ummr_job *job, int64_t task)
{
	int result = map_input(job, task);

	if (result == 1)
		result = map_again(job, task);
	if (result < 0)
		return -1;
	timeline_add(job->timeline, UMMR_PHASE_MAP, EVENT_STEP);
	job->work->tasks_since_sync++;
	if (work_finish_sync(job, UMMR_PHASE_MAP) < 0 ||
	    (work_is_sync_due(job) && start_sync(job) < 0))
		return -1;
	status_add(job->status, job->rank, STATUS_DONE, 1);
	report_tasks(job);
	status_serve(job->status);
	return 0;
}

/* Publishes the buckets. They need not be durable: a rank that has reduced the pairs of a task has
 * them, even if the task is mapped again. */
static int publish_buckets(ummr_job *job)
{
	if (work_finish_sync(job, UMMR_PHASE_MAP) < 0 || start_sync(job) < 0)
		return -1;
	for (int i = 0; i < job->ranks; i++)
		stream_publish(&job->work->buckets[i], (unsigned)i);
	status_advance(job->status, PHASE_MAP, PHASE_MAPPED);
	return 0;
}

static int map_tasks(ummr_job *job)
{
	int64_t task;
	int distance = 0;

	report_tasks(job);
	while (!status_is_stopped(job->status) && (task = take_task(job, &distance)) >= 0) {
		if (task + 1 < job->input->tasks)
			input_prefetch(job->input, task + 1);
		if (map_task(job, task) < 0)
			return -1;
	}
	return publish_buckets(job);
}

int map_phase(ummr_job *job)
{
	struct mapper m = { 0 };
	int result;

	job->mapper = &m;
	work_start_sync_clock(job->work);
	result = table_open(&m.table, job->config.reduce, job->config.arg);
	if (result == 0)
		result = map_tasks(job);
	table_close(&m.table);
	free(m.tasks);
	free(m.group);
	job->mapper = NULL;
	return result;
}
