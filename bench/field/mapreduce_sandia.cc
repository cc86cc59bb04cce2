/* SPDX-License-Identifier: BSD-3-Clause */
/* Word count by Sandia's MapReduce-MPI as in its manual, with compress before words are sent. The
 * result has no order. */
#include <fcntl.h>
#include <limits.h>

#include <mrmpi/mapreduce.h>
#include <mrmpi/keyvalue.h>

extern "C" {
#include "kit/common.h"
#include "kit/data.h"
#include "mapreduce.h"
}

using MAPREDUCE_NS::KeyValue;
using MAPREDUCE_NS::MapReduce;

struct mapping {
	const struct words_options *o;
	char *buffer;
	size_t capacity;
	int fd;
};

static MapReduce *counting;

static bool emit(const char *word, size_t size, void *kv)
{
	uint64_t one = 1;

	static_cast<KeyValue *>(kv)->add(const_cast<char *>(word), static_cast<int>(size),
					 reinterpret_cast<char *>(&one), sizeof(one));
	return true;
}

static void map(int task, KeyValue *kv, void *arg)
{
	struct mapping *m = static_cast<struct mapping *>(arg);
	size_t size;

	task_work(m->o, static_cast<uint64_t>(task));
	size = task_read(m->o, m->fd, static_cast<uint64_t>(task), &m->buffer, &m->capacity);
	words_each(m->buffer, size, m->o->pairs, emit, kv);
}

static uint64_t add_up(const char *values, int count)
{
	uint64_t value, sum = 0;

	for (int i = 0; i < count; i++) {
		memcpy(&value, values + 8 * i, sizeof(value));
		sum += value;
	}
	return sum;
}

/* Values that are larger than a page of its memory come in blocks, and reading a block overwrites
 * the key. */
static void reduce(char *key, int key_size, char *values, int count, int *sizes, KeyValue *kv,
		   void *)
{
	char kept[MAX_PAIR_BYTES];
	uint64_t sum = 0;
	int blocks;

	if (key_size > MAX_PAIR_BYTES)
		die("MapReduce-MPI: a word of %d bytes", key_size);
	memcpy(kept, key, static_cast<size_t>(key_size));
	if (values) {
		sum = add_up(values, count);
	} else {
		counting->multivalue_blocks(blocks);
		for (int i = 0; i < blocks; i++) {
			int n = counting->multivalue_block(i, &values, &sizes);

			sum += add_up(values, n);
		}
	}
	kv->add(kept, key_size, reinterpret_cast<char *>(&sum), sizeof(sum));
}

static void count(const struct words_options *o)
{
	struct mapping m = { o, NULL, 0, open_file(o->path, O_RDONLY) };
	uint64_t tasks = tasks_of(o);

	if (tasks > INT_MAX)
		die("MapReduce-MPI has at most %d tasks", INT_MAX);
	counting = new MapReduce(MPI_COMM_WORLD);
	counting->verbosity = counting->timer = 0;
	counting->memsize = o->table ? static_cast<int>(o->table / MIB) : 256;
	counting->keyalign = counting->valuealign = 8;
	counting->set_fpath(o->storage ? o->storage : ".");
	counting->map(static_cast<int>(tasks), map, &m);
	counting->compress(reduce, NULL);
	counting->collate(NULL);
	counting->reduce(reduce, NULL);
	close(m.fd);
	free(m.buffer);
}

static void see(char *key, int key_size, char *value, int, void *arg)
{
	counted_add(static_cast<struct counted *>(arg), key, static_cast<size_t>(key_size),
		    add_up(value, 1));
}

static void result(const struct words_options *, struct counted *to)
{
	counting->scan(see, to);
	delete counting;
}

extern const struct way way_sandia = { "sandia", "Sandia's MapReduce-MPI", count, result };
