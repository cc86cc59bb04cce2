/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/sort.h"

#include "mapreduce/config.h"
#include "mapreduce/error.h"
#include "mapreduce/merge.h"
#include "mapreduce/work.h"

#include <errno.h>
#include <stdlib.h>

/* Numbers of streams that are merged at once. */
#define MIN_MERGED_STREAMS 2
#define MAX_MERGED_STREAMS 64

/* The buffers of merged streams take at most this part of table_size. */
#define BUFFER_FRACTION 4

static unsigned max_merged_streams(const ummr_job *job)
{
	size_t count = job->config.table_size / BUFFER_FRACTION /
		       config_transfer_size(&job->config);

	return count < MIN_MERGED_STREAMS ? MIN_MERGED_STREAMS :
	       count > MAX_MERGED_STREAMS ? MAX_MERGED_STREAMS : (unsigned)count;
}

int sort_open(ummr_job *job, struct sorter *s)
{
	*s = (struct sorter){ 0 };
	return table_open(&s->table, job->config.reduce, job->config.arg);
}

void sort_close(struct sorter *s)
{
	table_close(&s->table);
	while (s->count > 0)
		stream_close(&s->streams[--s->count]);
	free(s->streams);
	free(s->levels);
}

static struct stream *add_stream(ummr_job *job, struct sorter *s)
{
	if (s->count == s->capacity) {
		unsigned capacity = 2 * s->capacity + 16;
		struct stream *streams = realloc(s->streams, capacity * sizeof(*streams));
		unsigned *levels = realloc(s->levels, capacity * sizeof(*levels));

		s->streams = streams ? streams : s->streams;
		s->levels = levels ? levels : s->levels;
		if (!streams || !levels) {
			set_error(ENOMEM, "cannot sort %u streams: no memory", capacity);
			return NULL;
		}
		s->capacity = capacity;
	}
	s->levels[s->count] = 0;
	stream_open(&s->streams[s->count], &job->work->runs);
	return &s->streams[s->count++];
}

static int merge_streams(ummr_job *job, const struct stream *streams, unsigned count,
			 write_function *write, struct stream *to)
{
	struct reader readers[MAX_MERGED_STREAMS];

	for (unsigned i = 0; i < count; i++)
		reader_open_local(&readers[i], &streams[i]);
	return merge_readers(job, readers, count, write, to);
}

/* Replaces the last streams by one of this level. */
static int merge_last(ummr_job *job, struct sorter *s, unsigned count, unsigned level)
{
	struct stream merged;
	int result;

	stream_open(&merged, &job->work->runs);
	result = merge_streams(job, s->streams + s->count - count, count,
			       job->config.reduce ? merge_reduce : merge_copy, &merged);
	for (unsigned i = 0; i < count; i++)
		stream_close(&s->streams[--s->count]);
	s->levels[s->count] = level;
	s->streams[s->count++] = merged;
	return result;
}

static int write_table(ummr_job *job, struct table *table, write_function *write,
		       struct stream *to)
{
	struct source source;
	int result = source_open_table(&source, table, is_descending(job));

	if (result == 0)
		result = write(job, &source, to);
	source_close(&source);
	table_clear(table);
	return result;
}

int sort_write_table(ummr_job *job, struct sorter *s)
{
	struct stream *stream = add_stream(job, s);
	unsigned max = max_merged_streams(job);

	if (!stream || write_table(job, &s->table, merge_copy, stream) < 0)
		return -1;
	while (s->count >= max && s->levels[s->count - max] == s->levels[s->count - 1])
		if (merge_last(job, s, max, s->levels[s->count - 1] + 1) < 0)
			return -1;
	return 0;
}

int sort_finish(ummr_job *job, struct sorter *s)
{
	bool has_groups = job->config.reduce_all;
	unsigned max = max_merged_streams(job);
	struct stream *run = &job->work->run;

	if (s->count == 0)
		return write_table(job, &s->table, has_groups ? values_reduce : merge_copy, run);
	if (s->table.entries > 0 && sort_write_table(job, s) < 0)
		return -1;
	while (s->count > max) {
		/* The first merge takes as few streams as leave `max` for the last one. */
		unsigned excess = s->count - max;

		if (merge_last(job, s, excess < max - 1 ? excess + 1 : max, 0) < 0)
			return -1;
	}
	return merge_streams(job, s->streams, s->count, has_groups ? values_reduce : merge_reduce,
			     run);
}
