/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From the table of Reduce to the rank's run. A table that is full is written as a sorted stream; when there are enough of
 * one level, they are merged into one of the next. In the end all that there are, or the table if it was never full, are merged
 * into the run. So memory is needed for one table and for a part of each stream that is merged.
 */
#include "mapreduce/job.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

#define LEAST_FAN 2
#define MOST_FAN 64
/* Bytes of pairs that are merged, on their way. */
#define BATCH ((uint64_t)1 << 18)

/* How many streams are merged at a time. */
static unsigned fan(const ummr_job *job)
{
	size_t fan = job->config.table_size / 4 / job->config.transfer_limit;

	return fan < LEAST_FAN ? LEAST_FAN : fan > MOST_FAN ? MOST_FAN : (unsigned)fan;
}

/* ---- Pairs of a source into a stream ---- */

int source_copy(ummr_job *job, struct source *from, struct stream *to)
{
	struct pair p;
	int there;

	while ((there = source_next(from, &p)) > 0) {
		if (stream_append(to, &p) < 0)
			return -1;
		serve_sometimes(job);
	}
	return there;
}

int merge_readers(ummr_job *job, struct reader *readers, unsigned count, take_function *take, struct stream *to)
{
	struct source source;
	int result = source_open_streams(&source, readers, count, job->config.order == UMMR_ORDER_DESCENDING);

	if (result == 0)
		result = take(job, &source, to);
	source_close(&source);
	for (unsigned i = 0; i < count; i++)
		reader_close(&readers[i]);
	return result;
}

static int flush(struct table *batch, struct stream *to)
{
	for (struct entry *e = batch->first; e; e = e->next) {
		struct pair p = { e->head, e->key, e->value };

		if (stream_append(to, &p) < 0)
			return -1;
	}
	table_clear(batch);
	return 0;
}

/* The key of the table's last entry. */
static bool is_last(const struct table *batch, const struct pair *p)
{
	return p->head.hash == batch->newest->head.hash &&
	       compare_keys(p->key, p->head.key_size, batch->newest->key, batch->newest->head.key_size) == 0;
}

/* Pairs of one key come one behind the other, and leave a table in the order in which they came. */
static int reduce_batches(ummr_job *job, struct source *from, struct table *batch, struct stream *to)
{
	struct pair p;
	int there;

	while ((there = source_next(from, &p)) > 0) {
		if (batch->bytes > BATCH && !is_last(batch, &p) && flush(batch, to) < 0)
			return -1;
		if (table_add(batch, p.head.hash, p.key, p.head.key_size, p.value, p.head.value_size) < 0)
			return -1;
		serve_sometimes(job);
	}
	return there < 0 ? -1 : flush(batch, to);
}

static int reduce(ummr_job *job, struct source *from, struct stream *to)
{
	struct table batch;
	int result = table_open(&batch, job->config.reduce, job->config.arg);

	if (result == 0)
		result = reduce_batches(job, from, &batch, to);
	table_close(&batch);
	return result;
}

/* ---- Sorted streams ---- */

static struct stream *add_sorted(ummr_job *job, unsigned level)
{
	struct sorted *s = &job->sorted;

	if (s->count == s->room) {
		unsigned room = 2 * s->room + 16;
		struct stream *streams = realloc(s->streams, room * sizeof(*streams));
		unsigned *levels = realloc(s->levels, room * sizeof(*levels));

		s->streams = streams ? streams : s->streams;
		s->levels = levels ? levels : s->levels;
		if (!streams || !levels) {
			fail(ENOMEM, "cannot sort %u streams: no memory", room);
			return NULL;
		}
		s->room = room;
	}
	s->levels[s->count] = level;
	stream_open(&s->streams[s->count], &job->runs);
	return &s->streams[s->count++];
}

/* Merges the streams into another one. */
static int merge(ummr_job *job, const struct stream *streams, unsigned count, take_function *take, struct stream *to)
{
	struct reader readers[MOST_FAN];

	for (unsigned i = 0; i < count; i++)
		reader_open_own(&readers[i], &streams[i]);
	return merge_readers(job, readers, count, take, to);
}

/* The last streams into one of this level, which takes their place. */
static int merge_last(ummr_job *job, unsigned count, unsigned level)
{
	struct sorted *s = &job->sorted;
	struct stream merged;
	int result;

	stream_open(&merged, &job->runs);
	result = merge(job, s->streams + s->count - count, count, job->config.reduce ? reduce : source_copy, &merged);
	for (unsigned i = 0; i < count; i++)
		stream_close(&s->streams[--s->count]);
	s->levels[s->count] = level;
	s->streams[s->count++] = merged;
	return result;
}

static int write_table(ummr_job *job, take_function *take, struct stream *to)
{
	struct source source;
	int result = source_open_table(&source, &job->table, job->config.order == UMMR_ORDER_DESCENDING);

	if (result == 0)
		result = take(job, &source, to);
	source_close(&source);
	table_clear(&job->table);
	return result;
}

int sort_table(ummr_job *job)
{
	struct sorted *s = &job->sorted;
	struct stream *stream = add_sorted(job, 0);
	unsigned most = fan(job);

	if (!stream || write_table(job, source_copy, stream) < 0)
		return -1;
	while (s->count >= most && s->levels[s->count - most] == s->levels[s->count - 1])
		if (merge_last(job, most, s->levels[s->count - 1] + 1) < 0)
			return -1;
	return 0;
}

int sort_finish(ummr_job *job)
{
	struct sorted *s = &job->sorted;
	bool all = job->config.reduce_all;
	unsigned most = fan(job);

	if (s->count == 0)
		return write_table(job, all ? values_reduce : source_copy, &job->run);
	if (job->table.entries > 0 && sort_table(job) < 0)
		return -1;
	while (s->count > most)
		if (merge_last(job, s->count - most < most - 1 ? s->count - most + 1 : most, 0) < 0)
			return -1;
	return merge(job, s->streams, s->count, all ? values_reduce : reduce, &job->run);
}

void sort_close(ummr_job *job)
{
	struct sorted *s = &job->sorted;

	while (s->count > 0)
		stream_close(&s->streams[--s->count]);
	free(s->streams);
	free(s->levels);
	*s = (struct sorted){ 0 };
}
