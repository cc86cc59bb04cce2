/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/merge.h"

#include "mapreduce/status.h"
#include "mapreduce/table.h"

/* The table of merge_reduce is written to the stream when it has this size. */
#define MAX_BATCH_BYTES ((uint64_t)1 << 18)

int merge_copy(ummr_job *job, struct source *from, struct stream *to)
{
	struct pair p;
	int found;

	while ((found = source_next(from, &p)) > 0) {
		if (stream_append(to, &p) < 0)
			return -1;
		status_serve_sometimes(job->status);
	}
	return found;
}

/* Entries leave the table in the order in which they were added, which is the order of keys. */
static int flush_batch(struct table *batch, struct stream *to)
{
	for (struct entry *e = batch->oldest; e; e = e->next) {
		struct pair p = { e->header, e->key, e->value };

		if (stream_append(to, &p) < 0)
			return -1;
	}
	table_clear(batch);
	return 0;
}

static bool has_newest_key(const struct table *batch, const struct pair *p)
{
	const struct entry *e = batch->newest;

	return p->header.hash == e->header.hash &&
	       compare_keys(p->key, p->header.key_size, e->key, e->header.key_size) == 0;
}

static int reduce_batches(ummr_job *job, struct source *from, struct table *batch,
			  struct stream *to)
{
	struct pair p;
	int found;

	while ((found = source_next(from, &p)) > 0) {
		/* All pairs of a key must meet in the same batch. */
		if (batch->bytes > MAX_BATCH_BYTES && !has_newest_key(batch, &p) &&
		    flush_batch(batch, to) < 0)
			return -1;
		if (table_add(batch, p.header.hash, p.key, p.header.key_size, p.value,
			      p.header.value_size) < 0)
			return -1;
		status_serve_sometimes(job->status);
	}
	return found < 0 ? -1 : flush_batch(batch, to);
}

int merge_reduce(ummr_job *job, struct source *from, struct stream *to)
{
	struct table batch;
	int result = table_open(&batch, job->config.reduce, job->config.arg);

	if (result == 0)
		result = reduce_batches(job, from, &batch, to);
	table_close(&batch);
	return result;
}

int merge_readers(ummr_job *job, struct reader *readers, unsigned count, write_function *write,
		  struct stream *to)
{
	struct source source;
	int result = source_open_streams(&source, readers, count, is_descending(job));

	if (result == 0)
		result = write(job, &source, to);
	source_close(&source);
	for (unsigned i = 0; i < count; i++)
		reader_close(&readers[i]);
	return result;
}
