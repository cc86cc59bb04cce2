/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/merge.h"

#include "mapreduce/error.h"
#include "mapreduce/status.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_KEY_IN_MESSAGE 64

struct ummr_values {
	struct source *source;     /* groups in order of keys */
	struct stream *result;     /* pairs of ummr_put */
	struct pair group;         /* the current group: of this key, or of the next one */
	int found;                 /* result of source_next for the group: 1, 0 or -1 */
	uint64_t next;             /* offset of the next member of the group */
	struct ummr_header header; /* header of the key */
	char *key;                 /* copy of the key: that of a group ends with the group */
	size_t key_capacity;       /* bytes of memory for the key */
	bool has_put_failed;       /* whether a pair could not be stored */
};

static bool is_group_of_key(const struct ummr_values *v)
{
	return v->found > 0 && compare_keys(v->group.key, v->group.header.key_size, v->key,
					    v->header.key_size) == 0;
}

static void read_group(struct ummr_values *v)
{
	v->found = source_next(v->source, &v->group);
	v->next = 0;
}

int ummr_next_value(ummr_values *v, struct ummr_bytes *value)
{
	const struct group_member *m;

	while (is_group_of_key(v) && v->next == v->group.header.value_size)
		read_group(v);
	if (!is_group_of_key(v))
		return v->found < 0 ? -1 : 0;
	m = (const struct group_member *)((const char *)v->group.value + v->next);
	*value = (struct ummr_bytes){ m->data, m->size };
	v->next += sizeof(*m) + padded_size(m->size);
	return 1;
}

/* Makes the key of the current group the key whose values are read. */
static int copy_key(struct ummr_values *v)
{
	size_t size = v->group.header.key_size;

	if (size > v->key_capacity) {
		char *key = realloc(v->key, size);

		if (!key)
			return set_error(ENOMEM, "cannot store a key of %zu bytes: no memory",
					 size);
		v->key = key;
		v->key_capacity = size;
	}
	v->header = v->group.header;
	if (size > 0)
		memcpy(v->key, v->group.key, size);
	return 0;
}

int ummr_put(ummr_job *job, const void *value, size_t size)
{
	struct ummr_values *v = job->values;
	bool is_valid = size <= PTRDIFF_MAX / 2 && (value || size == 0);
	struct pair p;

	if (!v)
		return set_error(EINVAL, "cannot put a value: ummr_put is only for reduce_all "
				 "while it runs");
	p = (struct pair){ v->header, v->key, value };
	p.header.value_size = size;
	if (is_valid && stream_append(v->result, &p) == 0)
		return 0;
	v->has_put_failed = true;
	return is_valid ? -1 : set_error(EINVAL, "cannot put a value of %zu bytes at %p: the size "
					 "is too large, or the pointer is NULL", size, value);
}

static int reduce_key(ummr_job *job, struct ummr_values *v)
{
	struct ummr_bytes key, value;
	int result, shown;

	if (copy_key(v) < 0)
		return -1;
	key = (struct ummr_bytes){ v->key, v->header.key_size };
	shown = (int)(key.size < MAX_KEY_IN_MESSAGE ? key.size : MAX_KEY_IN_MESSAGE);
	job->values = v;
	result = job->config.reduce_all(job, &key, v, job->config.arg);
	job->values = NULL;
	if (v->has_put_failed || v->found < 0)
		return -1;
	if (result != 0)
		return set_error(ECANCELED, "cannot reduce: reduce_all has failed for the key "
				 "'%.*s'",
				 shown,
				 v->key);
	/* The function may have left values of the key unread. */
	while (ummr_next_value(v, &value) > 0)
		;
	status_serve_sometimes(job->status);
	return v->found < 0 ? -1 : 0;
}

int values_reduce(ummr_job *job, struct source *from, struct stream *to)
{
	struct ummr_values v = { .source = from, .result = to };
	int result = 0;

	read_group(&v);
	while (result == 0 && v.found > 0 && !status_is_stopped(job->status))
		result = reduce_key(job, &v);
	free(v.key);
	return v.found < 0 ? -1 : result;
}
