/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce_all: all values of a key, from groups that come one behind the other, and what the program makes of them. */
#include "mapreduce/job.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

struct ummr_values {
	struct source *source;
	struct stream *result;
	struct pair pair;      /* a group, while there is one: of the key, or of the next one */
	int there;             /* as source_next has said */
	uint64_t at;           /* the next member in it */
	struct ummr_header head; /* of the key */
	char *key;             /* a copy: the source's is gone with the first group */
	size_t room;
};

static bool is_of_key(const struct ummr_values *v)
{
	return v->there > 0 && compare_keys(v->pair.key, v->pair.head.key_size, v->key, v->head.key_size) == 0;
}

static void next_group(struct ummr_values *v)
{
	v->there = source_next(v->source, &v->pair);
	v->at = 0;
}

int ummr_next_value(ummr_values *v, struct ummr_bytes *value)
{
	const struct member *m;

	while (is_of_key(v) && v->at == v->pair.head.value_size)
		next_group(v);
	if (!is_of_key(v))
		return v->there < 0 ? -1 : 0;
	m = (const struct member *)((const char *)v->pair.value + v->at);
	*value = (struct ummr_bytes){ m->data, m->size };
	v->at += sizeof(*m) + padded(m->size);
	return 1;
}

static int keep_key(struct ummr_values *v)
{
	size_t size = v->pair.head.key_size;

	if (size > v->room) {
		char *key = realloc(v->key, size);

		if (!key)
			return fail(ENOMEM, "cannot store a key of %zu bytes: no memory", size);
		v->key = key;
		v->room = size;
	}
	v->head = v->pair.head;
	if (size > 0)
		memcpy(v->key, v->pair.key, size);
	return 0;
}

int ummr_put(ummr_job *job, const void *value, size_t size)
{
	struct pair p;

	if (!job->putting)
		return fail(EINVAL, "cannot put a value: ummr_put is only for reduce_all while it "
			    "runs");
	p = (struct pair){ job->putting->head, job->putting->key, value };
	p.head.value_size = size;
	if (size > PTRDIFF_MAX / 2 || (!value && size > 0))
		return job->put_failed = fail(EINVAL, "cannot put a value of %zu bytes at %p: the "
				"size is too large, or the pointer is NULL", size, value);
	return stream_append(job->putting->result, &p) < 0 ? job->put_failed = -1 : 0;
}

/* What the function has left of the values is passed over. */
static int reduce_key(ummr_job *job, struct ummr_values *v)
{
	struct ummr_bytes key, value;
	int result;

	if (keep_key(v) < 0)
		return -1;
	key = (struct ummr_bytes){ v->key, v->head.key_size };
	job->putting = v;
	result = job->config.reduce_all(job, &key, v, job->config.arg);
	job->putting = NULL;
	if (job->put_failed || v->there < 0)
		return -1;
	if (result != 0)
		return fail(ECANCELED, "cannot reduce: reduce_all has failed for the key '%.*s'",
			    (int)(key.size < 64 ? key.size : 64), v->key);
	while (ummr_next_value(v, &value) > 0)
		;
	serve_sometimes(job);
	return v->there < 0 ? -1 : 0;
}

int values_reduce(ummr_job *job, struct source *from, struct stream *to)
{
	struct ummr_values v = { .source = from, .result = to };
	int result = 0;

	job->put_failed = 0;
	next_group(&v);
	while (result == 0 && v.there > 0 && !status_stopped(&job->status))
		result = reduce_key(job, &v);
	free(v.key);
	return v.there < 0 ? -1 : result;
}
