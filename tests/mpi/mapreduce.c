/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce - results of MapReduce jobs are compared with those of plain loops: random pairs with
 * random configurations, values that grow, values that are large, tasks that other ranks must take,
 * and records that are longer than tasks. Invalid configurations and calls must fail at all ranks.
 */
#include "mapreduce.h"
#include "../sanitizers.h"

#define KEYS 1000

static uint64_t seed = 1; /* the same at all ranks */

static uint64_t random_number(uint64_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % below;
}

/* ---- Random pairs: the result is the sum of numbers by key ---- */

struct record {
	uint32_t key, number;
};

/* Makes a key of 0 to 60 bytes, whose first four bytes are its number. Some keys contain zeros. */
static size_t make_key(uint32_t key, char bytes[64])
{
	memset(bytes, key % 3 ? 'k' : 0, 64);
	memcpy(bytes, &key, sizeof(key));
	return key == 0 ? 0 : sizeof(key) + key % 57;
}

static int map_records(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)arg;
	check(task->offset % sizeof(struct record) == 0 && task->size % sizeof(struct record) == 0);
	for (size_t at = 0; at < task->size; at += sizeof(struct record)) {
		struct record r;
		uint64_t number;
		char key[64];

		memcpy(&r, task->data + at, sizeof(r));
		number = r.number;
		check(ummr_emit(job, key, make_key(r.key, key), &number, sizeof(number)) == 0, "%s",
		      ummr_error());
	}
	return 0;
}

static int add_number(const struct ummr_bytes *key, struct ummr_value *value,
		      const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	check(value->size == 8 && other->size == 8 && (uintptr_t)value->data % 8 == 0 &&
	      (uintptr_t)other->data % 8 == 0);
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

/* Adds all values of a key. */
static int add_all_numbers(ummr_job *job, const struct ummr_bytes *key, ummr_values *values,
			   void *arg)
{
	struct ummr_bytes value;
	uint64_t sum = 0;
	int found;

	(void)key, (void)arg;
	while ((found = ummr_next_value(values, &value)) > 0) {
		check(value.size == 8 && (uintptr_t)value.data % 8 == 0);
		sum += *(const uint64_t *)value.data;
	}
	check(found == 0 && ummr_next_value(values, &value) == 0);
	return ummr_put(job, &sum, sizeof(sum));
}

/* Makes an input file. Half of its records have one key. */
static size_t make_records(uint64_t sums[KEYS])
{
	size_t count = random_number(20000);
	struct record *records = malloc((count + 1) * sizeof(*records));

	memset(sums, 0, KEYS * sizeof(*sums));
	for (size_t i = 0; i < count; i++) {
		records[i].key = random_number(2) ? 7 : (uint32_t)random_number(KEYS);
		records[i].number = (uint32_t)random_number(1u << 30) + 1;
		sums[records[i].key] += records[i].number;
	}
	make_file("records", records, count * sizeof(*records));
	free(records);
	return count;
}

static int compare_keys(const struct ummr_bytes *a, const struct ummr_bytes *b)
{
	int order = memcmp(a->data, b->data, a->size < b->size ? a->size : b->size);

	return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* Reads this rank's part of the result: keys must be in order, and each key must come once. */
static void read_sums(ummr_job *job, const struct ummr_config *c, uint64_t sums[KEYS])
{
	struct ummr_bytes key, value, last = { 0 };
	char before[64], wanted[64];
	int end;

	memset(sums, 0, KEYS * sizeof(*sums));
	while ((end = ummr_next(job, &key, &value)) > 0) {
		uint32_t k = 0;

		check(value.size == 8 && key.size <= sizeof(wanted));
		memcpy(&k, key.data, key.size ? sizeof(k) : 0);
		check(k < KEYS && make_key(k, wanted) == key.size &&
		      memcmp(wanted, key.data, key.size) == 0, "key %u", k);
		if (last.data)
			check(c->order == UMMR_ORDER_ASCENDING ? compare_keys(&last, &key) < 0
			      : compare_keys(&last, &key) > 0);
		last = (struct ummr_bytes){ memcpy(before, key.data, key.size), key.size };
		check(sums[k] == 0);
		sums[k] = *(const uint64_t *)value.data;
	}
	check(end == 0, "%s", ummr_error());
}

static void check_sums(ummr_job *job, const struct ummr_config *c, const uint64_t sums[KEYS])
{
	uint64_t found[KEYS], again[KEYS], owners[KEYS], all[KEYS];

	read_sums(job, c, found);
	check(ummr_rewind(job) == 0);
	read_sums(job, c, again);
	check(memcmp(found, again, sizeof(found)) == 0);
	for (int i = 0; i < KEYS; i++)
		owners[i] = found[i] != 0;
	check(c->combine == UMMR_COMBINE_OFF || rank == 0 ||
	      memcmp(owners, (uint64_t[KEYS]){ 0 }, sizeof(owners)) == 0);
	MPI_Allreduce(found, all, KEYS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, owners, KEYS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < KEYS; i++)
		check(all[i] == sums[i] && owners[i] == (sums[i] != 0),
		      "key %d: %" PRIu64 ", not %" PRIu64, i, all[i], sums[i]);
}

/* Checks that the file of ummr_write has these sums. */
static void check_written_sums(ummr_job *job, const uint64_t sums[KEYS])
{
	uint64_t found[KEYS] = { 0 };
	struct ummr_header header;
	FILE *f;

	check(ummr_write(job, path_of("result"), NULL) == 0, "%s", ummr_error());
	MPI_Barrier(MPI_COMM_WORLD);
	f = fopen(path_of("result"), "r");
	check(f);
	while (fread(&header, sizeof(header), 1, f) == 1) {
		char key[64] = "";
		uint64_t value;
		uint32_t k = 0;

		check(header.key_size <= 64 && header.value_size == 8);
		check(fread(key, 1, (header.key_size + 7) & ~7u,
			    f) == ((header.key_size + 7) & ~7u) && fread(&value, 8, 1, f) == 1);
		memcpy(&k, key, header.key_size ? sizeof(k) : 0);
		check(k < KEYS && found[k] == 0);
		found[k] = value;
	}
	check(feof(f) && fclose(f) == 0);
	check(memcmp(found, sums, sizeof(found)) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Checks that no file of a job is left in the folder. */
static void check_no_files(void)
{
	DIR *d;
	const struct dirent *e;

	MPI_Barrier(MPI_COMM_WORLD);
	d = opendir(folder);
	while ((e = readdir(d)))
		check(strncmp(e->d_name, "ummr.", 5) != 0 && !strstr(e->d_name, ".unfinished"),
		      "%s is left", e->d_name);
	closedir(d);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void test_random_pairs(void)
{
	unsigned rounds = SANITIZED ? 2 : by_time(8, 60);

	for (unsigned round = 0; round < rounds; round++) {
		struct ummr_config c = UMMR_CONFIG_INIT;
		const char *inputs[] = { NULL, NULL };
		char input[400];
		uint64_t sums[KEYS];
		ummr_job *job;

		make_records(sums);
		inputs[0] = strcpy(input, path_of("records"));
		c.inputs = inputs;
		c.split = UMMR_SPLIT_FIXED;
		c.record_size = sizeof(struct record);
		c.map = map_records;
		c.reduce = random_number(2) ? add_number : NULL;
		c.reduce_all = c.reduce ? NULL : add_all_numbers;
		c.task_size = random_number(3) ? 500 + random_number(20000) : 0;
		c.bucket_size = random_number(3) ? 1 + random_number(5000) : 0;
		c.table_size = random_number(2) ? 100 + random_number(10000) : 0;
		c.combine = (int)random_number(2);
		c.order = (int)random_number(2);
		c.storage = round % 2 ? folder : NULL;
		c.sync_tasks = random_number(3) ? (uint32_t)random_number(3) : UMMR_SYNC_NEVER;
		job = create_job(&c);
		check_run(job);
		check_sums(job, &c, sums);
		check_written_sums(job, sums);
		check(ummr_end(job) == 0);
		check_no_files();
	}
}

/* ---- Values that grow, and large values: an index of lines by their first byte ---- */

static int map_lines(ummr_job *job, const struct ummr_task *task, void *arg)
{
	size_t at = 0;

	(void)arg;
	while (at < task->size) {
		const char *line = task->data + at, *end = memchr(line, '\n', task->size - at);
		uint64_t offset = task->offset + at;
		size_t length = (size_t)((end ? end : task->data + task->size) - line);

		check(end || offset + length == 100000 * 3 + 5);
		/* A line that begins with L emits a large value, whose bytes are all the same. */
		if (line[0] == 'L') {
			char *large = malloc(5 * MIB);

			memset(large, line[1], 5 * MIB);
			check(ummr_emit(job, "large", 5, large, 5 * MIB) == 0, "%s", ummr_error());
			free(large);
		} else {
			check(ummr_emit(job, line, 1, &offset, sizeof(offset)) == 0, "%s",
			      ummr_error());
		}
		at += length + 1;
	}
	return 0;
}

static int append_value(const struct ummr_bytes *key, struct ummr_value *value,
			const struct ummr_bytes *other, void *arg)
{
	size_t before = value->size;

	(void)key, (void)arg;
	if (ummr_resize(value, before + other->size) < 0)
		return -1;
	memcpy((char *)value->data + before, other->data, other->size);
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void check_large(const struct ummr_bytes *value)
{
	size_t counts[256] = { 0 };

	for (size_t i = 0; i < value->size; i++)
		counts[((const unsigned char *)value->data)[i]]++;
	check(value->size == 15 * MIB && counts['x'] == 5 * MIB && counts['y'] == 5 * MIB &&
	      counts['z'] == 5 * MIB);
}

/* The text has lines of three bytes, and one of five. */
static void check_index(ummr_job *job, const char *text, size_t size)
{
	struct ummr_bytes key, value;
	size_t lines = 0, large = 0;

	while (ummr_next(job, &key, &value) > 0) {
		uint64_t *found = malloc(value.size), n = value.size / 8, at = 0;

		if (key.size == 5) {
			check_large(&value);
			large++;
			free(found);
			continue;
		}
		check(key.size == 1 && value.size % 8 == 0);
		memcpy(found, value.data, value.size);
		qsort(found, n, 8, compare_numbers);
		for (size_t i = 0; i < size; i++)
			if ((i == 0 || text[i - 1] == '\n') && text[i] == *(const char *)key.data)
				check(at < n && found[at++] == i, "line at %zu", i);
		check(at == n);
		lines += n;
		free(found);
	}
	check(rank != 0 || (lines + 3 == 100001 && large == 1), "%zu lines", lines);
}

/* Half of all lines begin with h. */
static char random_letter(void)
{
	return random_number(2) ? 'h' : (char)('a' + random_number(26));
}

static void test_long_values(const char *storage)
{
	static char text[100000 * 3 + 5];
	struct ummr_config c = UMMR_CONFIG_INIT;
	char path[400];
	const char *inputs[] = { strcpy(path, path_of("lines")), NULL };
	ummr_job *job;

	for (int i = 0; i < 100000; i++)
		memcpy(text + 3 * i, (char[]){ random_letter(), '.', '\n' }, 3);
	memcpy(text + 3 * 10, "Lx\n", 3);
	memcpy(text + 3 * 50000, "Ly\n", 3);
	memcpy(text + 3 * 99999, "Lz\n", 3);
	memcpy(text + 3 * 100000, "last.", 5);
	make_file("lines", text, sizeof(text));
	c.inputs = inputs;
	c.map = map_lines;
	c.reduce = append_value;
	c.task_size = 10007;
	c.bucket_size = 4096;
	c.table_size = 4 * MIB;
	c.storage = storage;
	c.sync_tasks = 1;
	job = create_job(&c);
	check_run(job);
	check_index(job, text, sizeof(text));
	check(ummr_end(job) == 0);
}

/* ---- reduce_all: keys with no pair or several in the result, and unread values ---- */

static int map_numbers(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)arg;
	for (size_t at = 0; at < task->size; at++) {
		uint32_t number = (uint32_t)(task->offset + at) % 1000;

		/* Values have 0 to 6 bytes. */
		if (ummr_emit(job, &number, sizeof(number), "values",
			      (task->offset + at) / 1000 % 7) < 0)
			return -1;
	}
	return 0;
}

/* Puts number % 3 pairs of a key, each with the number of values. Some values remain unread. */
static int put_counts(ummr_job *job, const struct ummr_bytes *key, ummr_values *values, void *arg)
{
	uint32_t number = *(const uint32_t *)key->data;
	uint32_t count = 0, limit = number % 7 == 0 ? 3 : UINT32_MAX;
	struct ummr_bytes value;

	(void)arg;
	while (count < limit && ummr_next_value(values, &value) > 0) {
		check(value.size < 7 && memcmp(value.data, "values", value.size) == 0);
		count++;
	}
	check(*(const uint32_t *)key->data == number);
	for (uint32_t i = 0; i < number % 3; i++)
		check(ummr_put(job, &count, sizeof(count)) == 0);
	return 0;
}

static void test_all_values(size_t table_size)
{
	static const char zeros[20000];
	struct ummr_config c = UMMR_CONFIG_INIT;
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("zeros")), NULL };
	struct ummr_bytes key, value;
	uint32_t pairs = 0, counts[1000] = { 0 };
	ummr_job *job;

	make_file("zeros", zeros, sizeof(zeros));
	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = 1;
	c.map = map_numbers;
	c.reduce_all = put_counts;
	c.task_size = 999;
	c.bucket_size = 1000;
	c.table_size = table_size;
	c.storage = folder;
	job = create_job(&c);
	check_run(job);
	for (; ummr_next(job, &key, &value) > 0; pairs++) {
		uint32_t number = *(const uint32_t *)key.data;

		check(key.size == 4 && number < 1000 && value.size == 4);
		check(*(const uint32_t *)value.data == (number % 7 == 0 ? 3 : 20), "%u: %u", number,
		      *(const uint32_t *)value.data);
		counts[number]++;
	}
	for (uint32_t i = 0; rank == 0 && i < 1000; i++)
		check(counts[i] == i % 3, "key %u: %u", i, counts[i]);
	check(pairs == (rank == 0 ? 999 : 0));
	check(ummr_end(job) == 0);
}

/* ---- A job without pairs, and one with a single large one ---- */

static int map_nothing(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)job, (void)task, (void)arg;
	return 0;
}

static int map_one_pair(ummr_job *job, const struct ummr_task *task, void *arg)
{
	size_t size = *(const size_t *)arg;
	char *value = calloc(1, size);
	int result = task->offset == 0 ? ummr_emit(job, "", 0, value, size) : 0;

	free(value);
	return result;
}

static int count_bytes(ummr_job *job, const struct ummr_bytes *key, ummr_values *values, void *arg)
{
	struct ummr_bytes value;

	(void)arg;
	check(key->size == 0 && ummr_next_value(values, &value) == 1);
	check_refused(ummr_emit(job, "k", 1, NULL, 0), EINVAL, "for map functions");
	return ummr_put(job, &value.size, sizeof(value.size));
}

static void test_none_and_one(void)
{
	size_t size = by_time(10, 100) * MIB;
	struct ummr_config c = UMMR_CONFIG_INIT;
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("zeros")), NULL };
	struct ummr_bytes key, value;
	ummr_job *job;

	c.inputs = inputs;
	c.map = map_nothing;
	c.reduce_all = count_bytes;
	c.arg = &size;
	c.storage = folder;
	job = create_job(&c);
	check_run(job);
	check(ummr_next(job, &key, &value) == 0 && ummr_end(job) == 0);
	c.map = map_one_pair;
	job = create_job(&c);
	check_run(job);
	check_refused(ummr_put(job, "", 0), EINVAL, "for reduce_all");
	check(rank != 0 || (ummr_next(job, &key, &value) == 1 &&
			    *(const size_t *)value.data == size));
	check(ummr_next(job, &key, &value) == 0 && ummr_end(job) == 0);
}

/* ---- Several runs: each run multiplies all numbers by another factor ---- */

static int map_products(ummr_job *job, const struct ummr_task *task, void *arg)
{
	for (size_t at = 0; at < task->size; at += sizeof(struct record)) {
		struct record r;
		uint64_t number;
		char key[64];

		memcpy(&r, task->data + at, sizeof(r));
		number = r.number * *(const uint64_t *)arg;
		check(ummr_emit(job, key, make_key(r.key, key), &number, sizeof(number)) == 0, "%s",
		      ummr_error());
	}
	return 0;
}

static void test_several_runs(const char *storage, int combine)
{
	struct ummr_config c = UMMR_CONFIG_INIT;
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("records")), NULL };
	uint64_t sums[KEYS], times = 0;
	ummr_job *job;

	make_records(sums);
	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = sizeof(struct record);
	c.map = map_products;
	c.reduce = add_number;
	c.arg = &times;
	c.task_size = 5000;
	c.table_size = 10000;
	c.combine = combine;
	c.storage = storage;
	job = create_job(&c);
	while (times++ < 4) {
		uint64_t product[KEYS];

		check(ummr_runs(job) == times - 1);
		check_run(job);
		for (int i = 0; i < KEYS; i++)
			product[i] = sums[i] * times;
		check_sums(job, &c, product);
	}
	check(ummr_end(job) == 0);
	check_no_files();
}

/* ---- A map function that fails: pairs of the failed call must not count ---- */

struct failing {
	int times;       /* number of failures of each task that fails */
	int failed[100]; /* failures of each task at this rank */
};

/* Every seventh task fails after half of its records. */
static int map_with_failures(ummr_job *job, const struct ummr_task *task, void *arg)
{
	struct failing *f = arg;
	uint64_t number = task->offset / 700;
	struct ummr_task half = { task->data, task->size / 16 * 8, task->path, task->offset };

	if (number % 7 != 3 || f->failed[number] == f->times)
		return map_records(job, task, arg);
	f->failed[number]++;
	map_records(job, &half, arg);
	return 1;
}

static struct ummr_config failing_config(const char *const *inputs, struct failing *f,
					 uint32_t sync)
{
	struct ummr_config c = UMMR_CONFIG_INIT;

	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = sizeof(struct record);
	c.map = map_with_failures;
	c.reduce = add_number;
	c.arg = f;
	c.task_size = 704;
	c.table_size = 1000;
	c.bucket_size = 300;
	c.storage = sync ? folder : NULL;
	c.sync_tasks = sync;
	return c;
}

static void test_failures(uint32_t sync)
{
	struct failing f = { .times = 2 };
	struct record records[70 * 88];
	uint64_t sums[KEYS] = { 0 };
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("records")), NULL };
	struct ummr_config c = failing_config(inputs, &f, sync);
	ummr_job *job;

	for (size_t i = 0; i < 70 * 88; i++) {
		records[i] = (struct record){ (uint32_t)random_number(KEYS), (uint32_t)i + 1 };
		sums[records[i].key] += i + 1;
	}
	make_file("records", records, sizeof(records));
	job = create_job(&c);
	check_run(job);
	check_sums(job, &c, sums);
	check(ummr_end(job) == 0);
	for (int i = 0; i < 70; i++)
		MPI_Allreduce(MPI_IN_PLACE, &f.failed[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < 70; i++)
		check(f.failed[i] == (i % 7 == 3 ? 2 : 0), "task %d has failed %d times", i,
		      f.failed[i]);
}

/* ---- Pairs that take eight times the memory limit ---- */

#define LIMIT (4 * MIB) /* memory of windows */
#define VALUE_BYTES 100 /* a count, and bytes that follow from the key */

static uint64_t large_keys;

static void make_value(uint32_t key, unsigned char value[VALUE_BYTES])
{
	uint64_t one = 1;

	memset(value, (int)(key * 2654435761u >> 24), VALUE_BYTES);
	memcpy(value, &one, sizeof(one));
}

static int emit_large(ummr_job *job, uint32_t key)
{
	unsigned char bytes[4] = { (unsigned char)(key >> 24), (unsigned char)(key >> 16),
				   (unsigned char)(key >> 8),
				   (unsigned char)key }, value[VALUE_BYTES];

	make_value(key, value);
	return ummr_emit(job, bytes, sizeof(bytes), value, sizeof(value));
}

/* Each byte of the input stands for 64 keys. Both halves of the input have the same keys. If the
 * input is skewed, each key also emits a pair with key 0. */
static int map_large(ummr_job *job, const struct ummr_task *task, void *arg)
{
	bool is_skewed = arg;

	for (uint64_t at = task->offset * 64; at < (task->offset + task->size) * 64; at++)
		if (emit_large(job, (uint32_t)(at % large_keys) + 1) < 0 ||
		    (is_skewed && emit_large(job, 0) < 0))
			return -1;
	return 0;
}

static void add_counts(unsigned char *to, const unsigned char *other)
{
	uint64_t a, b;

	check(memcmp(to + 8, other + 8, VALUE_BYTES - 8) == 0);
	memcpy(&a, to, 8);
	memcpy(&b, other, 8);
	a += b;
	memcpy(to, &a, 8);
}

static int reduce_large(const struct ummr_bytes *key, struct ummr_value *value,
			const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	check(value->size == VALUE_BYTES && other->size == VALUE_BYTES);
	add_counts(value->data, other->data);
	return 0;
}

static int reduce_all_large(ummr_job *job, const struct ummr_bytes *key, ummr_values *values,
			    void *arg)
{
	unsigned char sum[VALUE_BYTES];
	struct ummr_bytes value;

	(void)arg, (void)key;
	check(ummr_next_value(values, &value) == 1 && value.size == VALUE_BYTES);
	memcpy(sum, value.data, VALUE_BYTES);
	while (ummr_next_value(values, &value) > 0)
		add_counts(sum, value.data);
	return ummr_put(job, sum, VALUE_BYTES);
}

/* Returns the peak resident memory of this rank in KiB. */
static size_t peak_memory(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[200];
	size_t peak = 0;

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %zu", &peak) == 1)
			break;
	fclose(f);
	return peak;
}

static void check_large_result(ummr_job *job, bool is_skewed)
{
	struct ummr_bytes key, value;
	uint32_t next = is_skewed ? 0 : 1;

	for (; ummr_next(job, &key, &value) > 0; next++) {
		const unsigned char *k = key.data;
		unsigned char want[VALUE_BYTES];
		uint64_t count = next ? 2 : 2 * large_keys;
		uint32_t number;

		number = (uint32_t)k[0] << 24 | (uint32_t)k[1] << 16 | (uint32_t)k[2] << 8 | k[3];
		check(key.size == 4 && number == next);
		make_value(next, want);
		memcpy(want, &count, sizeof(count));
		check(value.size == VALUE_BYTES && memcmp(want, value.data, VALUE_BYTES) == 0,
		      "key %u", next);
	}
	check(rank != 0 || next == large_keys + 1);
}

/* A pair takes 136 bytes in a bucket, or 144 as a group. Each pair comes twice. */
static void test_out_of_core(bool is_skewed)
{
	uint64_t limits = SANITIZED ? 2 : 8,
		 bytes = limits * LIMIT * (uint64_t)ranks / (is_skewed ? 4 : 2) / 136 / 64;
	struct ummr_config c = UMMR_CONFIG_INIT;
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("input")), NULL };
	char *zeros = calloc(2, bytes);
	size_t before = peak_memory(), grown;
	ummr_job *job;

	large_keys = bytes * 64;
	make_file("input", zeros, 2 * bytes);
	free(zeros);
	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = 1;
	c.map = map_large;
	c.reduce = is_skewed ? NULL : reduce_large;
	c.reduce_all = is_skewed ? reduce_all_large : NULL;
	c.arg = is_skewed ? &c : NULL;
	c.table_size = MIB;
	c.bucket_size = MIB;
	c.task_size = 500;
	c.storage = folder;
	c.sync_tasks = 4;
	job = create_job(&c);
	check_run(job);
	grown = (peak_memory() - before) * KIB;
	/* The limit does not include the table, the task, and MPI's memory for transfers, which
	 * grows with the time that ranks wait for each other. */
	check(SANITIZED || grown < 7 * LIMIT, "%zu KiB of memory", grown / KIB);
	check_large_result(job, is_skewed);
	check(ummr_end(job) == 0);
	check_no_files();
}

/* ---- Rank 0 stays in its first task until the other ranks have mapped all other tasks ---- */

struct shared {
	_Atomic int mapped; /* number of mapped tasks */
	int tasks;          /* number of tasks */
};

/* On several machines, other ranks may need MPI calls of this rank to take its tasks, so it emits
 * pairs. */
static int map_and_wait(ummr_job *job, const struct ummr_task *task, void *arg)
{
	struct shared *s = arg;
	uint64_t zero = 0, one = 1;
	int key = (int)(task->offset / 100);

	while (rank == 0 && s->mapped < s->tasks - 1) {
		for (int i = 0; getenv("MACHINES") && i < 100000; i++)
			check(ummr_emit(job, &key, sizeof(key), &zero, sizeof(zero)) == 0);
		usleep(1000);
	}
	s->mapped++;
	return ummr_emit(job, &key, sizeof(key), &one, sizeof(one));
}

static void test_task_stealing(void)
{
	struct ummr_config c = UMMR_CONFIG_INIT;
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("zeros")), NULL };
	static const char zeros[6000];
	struct ummr_bytes key, value;
	struct shared *s;
	ummr_job *job;
	int fd, pairs = 0;

	make_file("zeros", zeros, sizeof(zeros));
	make_file("shared", zeros, 4096);
	fd = open(path_of("shared"), O_RDWR | O_CLOEXEC);
	s = mmap(NULL, 4096, READ_WRITE, MAP_SHARED, fd, 0);
	check(s != MAP_FAILED);
	s->tasks = 60;
	MPI_Barrier(MPI_COMM_WORLD);
	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = c.task_size = 100;
	c.map = map_and_wait;
	c.reduce = add_number;
	c.arg = s;
	job = create_job(&c);
	check_run(job);
	check(s->mapped == 60);
	for (; ummr_next(job, &key, &value) > 0; pairs++)
		check(*(const uint64_t *)value.data == 1);
	check(rank != 0 || pairs == 60);
	check(ummr_end(job) == 0);
	munmap(s, 4096);
	close(fd);
}

/* ---- Records by find_record, longer than tasks, in several files ---- */

/* A record begins with '<' that is not followed by '!', so the next byte is needed to decide. */
static size_t find_own(const char *data, size_t size, void *arg)
{
	(void)arg;
	for (size_t i = 1; i + 1 < size; i++)
		if (data[i] == '<' && data[i + 1] != '!')
			return i;
	return 0;
}

static int map_own(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const char *end = task->data + task->size;
	uint64_t length;

	(void)arg;
	for (const char *p = task->data; p < end; p += length) {
		length = 1;
		while (p + length < end && (p[length] != '<' ||
					    (p + length + 1 < end && p[length + 1] == '!')))
			length++;
		check(p[0] == '<');
		if (ummr_emit(job, "bytes", 5, &length, 8) < 0 ||
		    ummr_emit(job, "records", 7, (uint64_t[]){ 1 }, 8) < 0)
			return -1;
	}
	return 0;
}

static void test_own_records(void)
{
	struct ummr_config c = UMMR_CONFIG_INIT;
	char text[20000], first[400], second[400];
	const char *inputs[] = { strcpy(first, path_of("own1")), strcpy(second, path_of("own2")),
				 NULL };
	uint64_t records = 0, bytes = 0;

	for (size_t part = 0, size; part < 2; part++, bytes += size) {
		for (size = 0; size < 15000; records++) {
			size_t length = 4 + random_number(part ? 4000 : 20);

			memset(text + size, 'r', length);
			memcpy(text + size, length % 2 ? "<r<!" : "<rrr", 4);
			size += length;
		}
		make_file(part ? "own2" : "own1", text, size);
	}
	for (c.task_size = 1; c.task_size < 40000; c.task_size = 3 * c.task_size + 100) {
		struct ummr_bytes key, value;
		ummr_job *job;

		c.inputs = inputs;
		c.split = UMMR_SPLIT_OWN;
		c.find_record = find_own;
		c.map = map_own;
		c.reduce = add_number;
		job = create_job(&c);
		check_run(job);
		if (rank == 0) {
			check(ummr_next(job, &key, &value) == 1 && key.size == 5 &&
			      *(const uint64_t *)value.data == bytes);
			check(ummr_next(job, &key, &value) == 1 && key.size == 7 &&
			      *(const uint64_t *)value.data == records);
		}
		check(ummr_next(job, &key, &value) == 0);
		check(ummr_end(job) == 0);
	}
}

/* ---- Calls that must fail at all ranks, with a message ---- */

static int bad_rank; /* the rank whose map function fails */

static int map_fails(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)arg;
	check(ummr_emit(job, "k", 1, &(uint64_t){ 1 }, 8) == 0);
	return task->offset > 0 && rank == bad_rank ? -1 : 0;
}

static int map_emits(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)task, (void)arg;
	return ummr_emit(job, "k", 1, "a", 1) < 0 || ummr_emit(job, "k", 1, "b", 1) < 0;
}

static int reduce_fails(const struct ummr_bytes *key, struct ummr_value *value,
			const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)value, (void)other, (void)arg;
	return 1;
}

static int reduce_emits(const struct ummr_bytes *key, struct ummr_value *value,
			const struct ummr_bytes *other, void *arg)
{
	(void)value, (void)other;
	check_refused(ummr_emit(arg ? *(ummr_job **)arg : NULL, key->data, key->size, NULL, 0),
		      EINVAL, "for map functions");
	return 0;
}

static int map_calls(ummr_job *job, const struct ummr_task *task, void *arg)
{
	struct ummr_bytes key, value;

	(void)arg, (void)task;
	check_refused(ummr_run(job), EINVAL, "running");
	check_refused(ummr_end(job), EINVAL, "running");
	check_refused(ummr_next(job, &key, &value), EINVAL, "ummr_run has returned 0");
	check_refused(ummr_write(job, "/nowhere", NULL), EINVAL, "ummr_run has returned 0");
	check(ummr_emit(job, "k", 1, "a", 1) == 0 && ummr_emit(job, "k", 1, "b", 1) == 0);
	return 0;
}

static size_t find_too_far(const char *data, size_t size, void *arg)
{
	(void)data, (void)arg;
	return size + 1;
}

static struct ummr_config good_config(const char *const *inputs)
{
	struct ummr_config c = UMMR_CONFIG_INIT;

	c.inputs = inputs;
	c.map = map_lines;
	c.reduce = add_number;
	c.task_size = 1000;
	return c;
}

static void test_bad_configs(const char *const *inputs)
{
	const struct ummr_config good = good_config(inputs);
	const char *missing[] = { inputs[0], "/nowhere/at all", NULL },
		*device[] = { "/dev/null", NULL };
	ummr_job *job;

#define refused(change, error, words) do { \
		struct ummr_config c = good; \
		change; \
		check_refused(ummr_create(MPI_COMM_WORLD, &c, &job), error, words); \
	} while (0)
	check_refused(ummr_create(MPI_COMM_WORLD, NULL, &job), EINVAL, "config is NULL");
	refused(c.struct_size = 8, EINVAL, "UMMR_CONFIG_INIT");
	refused(c.inputs = NULL, EINVAL, "names no file");
	refused(c.map = NULL, EINVAL, "map function");
	refused(if (rank == ranks - 1) c.reduce = NULL, EINVAL, "reduce function");
	refused(c.split = 7, EINVAL, "UMMR_SPLIT_");
	refused(c.split = UMMR_SPLIT_OWN, EINVAL, "find_record");
	refused(c.split = UMMR_SPLIT_FIXED, EINVAL, "record_size is 0");
	refused((c.split = UMMR_SPLIT_FIXED, c.record_size = 7), EINVAL,
		"not a whole number of records");
	refused(c.order = -1, EINVAL, "UMMR_ORDER_");
	refused(c.combine = 2, EINVAL, "UMMR_COMBINE_");
	refused(c.timeline = "/nowhere/at all", ENOENT,
		"cannot write the timeline '/nowhere/at all'");
	refused(c.inputs = missing, ENOENT, "cannot read '/nowhere/at all'");
	refused(c.inputs = device, EINVAL, "neither a file nor a folder");
	refused(c.storage = "/nowhere", ENOENT, "the storage folder '/nowhere'");
	refused(c.storage = inputs[0], ENOTDIR, "it is not a folder");
	if (ranks > 1)
		refused(c.task_size = 1000 + (rank == ranks - 1), EINVAL,
			"task_size is 1001 here and 1000 at rank 0, and must be the same at all "
			"ranks");
}

/* Runs a job that fails, and checks that it has no result. */
static void check_failure(struct ummr_config c, int error, const char *words)
{
	struct ummr_bytes key, value;
	ummr_job *job = create_job(&c);

	check_refused(ummr_run(job), error, words);
	check_refused(ummr_next(job, &key, &value), EINVAL, "ummr_run has returned 0");
	check_refused(ummr_run(job), EINVAL, "has failed");
	check(ummr_end(job) == 0);
}

/* The input is that of test_long_values. */
static void test_errors(void)
{
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("lines")), NULL };
	struct ummr_config c = good_config(inputs);
	ummr_job *job;

	test_bad_configs(inputs);
	/* map_fails fails for every task except the first one of the file. */
	c.map = map_fails;
	c.task_size = 100;
	bad_rank = 0;
	check_failure(c, ECANCELED, "the map function has failed 3 times for");
	c.map = map_emits;
	c.reduce = reduce_fails;
	check_failure(c, ECANCELED, "the reduce function has failed for the key");
	c.reduce = append_value;
	c.split = UMMR_SPLIT_OWN;
	c.find_record = find_too_far;
	check_failure(c, EINVAL, "find_record returned a record behind");
	c.split = UMMR_SPLIT_LINES;
	c.map = map_calls;
	c.reduce = reduce_emits;
	c.arg = &job;
	job = create_job(&c);
	check_run(job);
	check_refused(ummr_emit(job, "k", 1, NULL, 0), EINVAL, "for map functions");
	check_refused(ummr_write(job, "/nowhere/at all", NULL), ENOENT, "/nowhere/at all");
	check(ummr_end(job) == 0);
}

/* The input becomes shorter between ummr_create and ummr_run. */
static void test_shorter_input(void)
{
	char input[400];
	const char *inputs[] = { strcpy(input, path_of("cut")), NULL };
	struct ummr_config c = good_config(inputs);
	ummr_job *job;

	make_file("cut", "two\nlines\n", 10);
	c.task_size = 3;
	job = create_job(&c);
	MPI_Barrier(MPI_COMM_WORLD);
	make_file("cut", "short\n", 6);
	check_refused(ummr_run(job), ESTALE, "had 10 bytes when the job was created, and has 6 "
		      "bytes now");
	check(ummr_end(job) == 0);
}

/* ---- The timeline has each phase of each rank, and each task once ---- */

static int map_hundred(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)job, (void)arg;
	check(task->size == 100);
	return 0;
}

/* Makes a configuration with sixty tasks in one file. */
static struct ummr_config make_sixty_tasks(const char *const *inputs)
{
	struct ummr_config c = UMMR_CONFIG_INIT;
	static const char zeros[6000];

	make_file("zeros", zeros, sizeof(zeros));
	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = c.task_size = 100;
	c.map = map_hundred;
	c.reduce = add_number;
	return c;
}

struct seen {
	double last;      /* time of the last event */
	int begun, ended; /* number of phases that have begun, and ended */
	unsigned steps;   /* steps of Map */
};

static void check_event(struct seen *seen, double seconds, const char *phase, const char *event)
{
	static const char *const phases[] = { "map", "reduce", "combine" };

	check(seconds >= seen->last, "%f comes after %f", seconds, seen->last);
	seen->last = seconds;
	if (strcmp(event, "begin") == 0) {
		check(seen->begun == seen->ended && seen->begun < 3 &&
		      strcmp(phase, phases[seen->begun]) == 0, "%s begins", phase);
		seen->begun++;
		return;
	}
	check(seen->begun == seen->ended + 1 && strcmp(phase, phases[seen->ended]) == 0, "%s: %s",
	      phase, event);
	if (strcmp(event, "end") == 0)
		seen->ended++;
	else if (seen->ended == 0 && strcmp(event, "step") == 0)
		seen->steps++;
	else
		check(strcmp(event, "step") == 0 || strcmp(event, "sync") == 0, "%s", event);
}

static void check_timeline(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[200], phase[20], event[20];
	struct seen seen[64] = { 0 };
	unsigned steps = 0, number;
	unsigned long kib;
	double seconds;

	check(f && fgets(line, sizeof(line), f) && strcmp(line,
			"run,rank,seconds,phase,event,memory_kib\n") == 0);
	while (fgets(line, sizeof(line), f)) {
		check(sscanf(line, "1,%u,%lf,%19[a-z],%19[a-z],%lu", &number, &seconds, phase,
			     event, &kib) == 5, "%s", line);
		check(number < (unsigned)ranks && kib > 0, "%s", line);
		check_event(&seen[number], seconds, phase, event);
	}
	for (int i = 0; i < ranks; i++) {
		check(seen[i].ended == 3, "rank %d", i);
		steps += seen[i].steps;
	}
	check(steps == 60, "%u tasks", steps);
	check(fclose(f) == 0);
}

static void test_timeline(const char *storage)
{
	char input[400], path[400];
	const char *inputs[] = { strcpy(input, path_of("zeros")), NULL };
	struct ummr_config c = make_sixty_tasks(inputs);
	ummr_job *job;

	c.timeline = rank == 0 ? strcpy(path, path_of("timeline")) : NULL;
	c.storage = storage;
	job = create_job(&c);
	check_run(job);
	check(ummr_end(job) == 0);
	if (rank == 0)
		check_timeline(c.timeline);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	set_budget(LIMIT);
	set_env("UMMAP_SEG_SIZE", "256K");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	test_out_of_core(ranks % 2);
	if (getenv("UMMAP_TEST_LONG"))
		test_out_of_core(!(ranks % 2));
	test_random_pairs();
	test_all_values(3000);
	test_all_values(0);
	test_none_and_one();
	test_several_runs(NULL, UMMR_COMBINE_ON);
	test_several_runs(folder, UMMR_COMBINE_ON);
	test_several_runs(folder, UMMR_COMBINE_OFF);
	test_failures(0);
	test_failures(1);
	test_failures(3);
	test_long_values(NULL);
	test_long_values(folder);
	test_own_records();
	if (ranks > 1)
		test_task_stealing();
	test_errors();
	test_shorter_input();
	test_timeline(NULL);
	test_timeline(folder);
	check_no_files();
	MPI_Finalize();
	return 0;
}
