/* SPDX-License-Identifier: BSD-3-Clause */
/* Word count by libummap-mapreduce. */
#include <inttypes.h>
#include <unistd.h>

#include <ummap-mapreduce.h>

#include "kit/common.h"
#include "mapreduce.h"

static ummr_job *counting;

static bool emit_word(const char *word, size_t size, void *arg)
{
	uint64_t one = 1;

	return ummr_emit(arg, word, size, &one, sizeof(one)) == 0;
}

static int map_task(ummr_job *counted, const struct ummr_task *task, void *arg)
{
	const struct words_options *o = arg;

	task_work(o, task->offset / o->task);
	return words_each(task->data, task->size, o->pairs, emit_word, counted) ? 0 : -1;
}

static int reduce_counts(const struct ummr_bytes *key, struct ummr_value *value,
		  const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static MPI_Info make_hints(const struct words_options *o)
{
	char text[32];
	MPI_Info info;

	MPI_Info_create(&info);
	if (o->alloc.engine)
		MPI_Info_set(info, "storage_alloc_engine", o->alloc.engine);
	if (o->alloc.policy)
		MPI_Info_set(info, "storage_alloc_policy", o->alloc.policy);
	if (o->alloc.seg) {
		snprintf(text, sizeof(text), "%zu", o->alloc.seg);
		MPI_Info_set(info, "storage_alloc_segsize", text);
	}
	return info;
}

static void count_word(const struct words_options *o)
{
	struct ummr_config config = UMMR_CONFIG_INIT;
	const char *inputs[] = { o->path, NULL };
	MPI_Info info = make_hints(o);

	config.inputs = inputs;
	config.map = map_task;
	config.reduce = reduce_counts;
	config.arg = (void *)o;
	config.task_size = o->task;
	config.table_size = o->table;
	config.storage = o->storage;
	config.sync_tasks = o->sync;
	config.timeline = o->timeline;
	config.info = &info;
	if (ummr_create(MPI_COMM_WORLD, &config, &counting) < 0 || ummr_run(counting) < 0)
		die("%s", ummr_error());
	MPI_Info_free(&info);
}

static void walk_result(const struct words_options *o, struct counted *to)
{
	struct ummr_bytes key, value;
	char *before = malloc(o->size + 1);
	size_t length = 0;
	int there;

	if (!before)
		die("no memory for a word");
	while ((there = ummr_next(counting, &key, &value)) > 0) {
		int order = memcmp(before, key.data, length < key.size ? length : key.size);

		to->ordered = to->ordered && (order < 0 || (order == 0 && length <= key.size));
		length = key.size;
		memcpy(before, key.data, length);
		counted_add(to, key.data, key.size, *(const uint64_t *)value.data);
	}
	if (there < 0 || ummr_end(counting) < 0)
		die("%s", ummr_error());
	free(before);
}

const struct way way_1s = { "1s", "one-sided", count_word, walk_result };
