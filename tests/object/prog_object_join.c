/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_join - processes of two threads each make versions of the same names at the same
 * time, whole and from older ones, while others read, list, and collect garbage. Each version has
 * its own number, and all of its chunks belong to it.
 */
#include "object.h"

#include <pthread.h>

#define WRITERS 3
#define KEEP 3
#define ELEMENTS 3000
static const struct umobject_shape shape = { .type = UMOBJECT_UINT64, .rank = 1,
	.dims = { ELEMENTS }, .chunk = { 700 } };
static const char *const names[2] = { "a", "b/c" };
static unsigned rounds;

/* In memory that all processes share: how many versions have each number. */
static unsigned *numbers[2];
static bool *over;

static void fill_array(uint64_t *data, uint64_t what)
{
	for (unsigned i = 0; i < ELEMENTS; i++)
		data[i] = what;
}

static void expect_one(const uint64_t *data)
{
	for (unsigned i = 1; i < ELEMENTS; i++)
		check(data[i] == data[0], "a mixture of %" PRIu64 " and %" PRIu64, data[0],
		      data[i]);
}

static void note(unsigned which, uint64_t version)
{
	check(version > 0 && version <= 2 * WRITERS * rounds);
	check(__atomic_fetch_add(&numbers[which][version], 1, __ATOMIC_RELAXED) == 0, "two "
	      "versions %" PRIu64, version);
}

/* Makes a version from the newest one, if there is one. All of its chunks are put again, in
 * turns. */
static void make_version(umobject_container *c, unsigned which, uint64_t what, bool from)
{
	uint64_t data[ELEMENTS], version;
	umobject_version *v = NULL;
	umobject_put *p;

	fill_array(data, what);
	if (from && umobject_hold(c, names[which], 0, &v) == 0)
		good(umobject_begin_from(v, &p, NULL));
	else
		good(umobject_begin(c, names[which], &shape, &p, NULL));
	for (unsigned i = 0; i < 5; i++)
		good(umobject_put_chunk(p, (i + what) % 5, data));
	good(umobject_commit(p, 0, &version));
	note(which, version);
	umobject_release(v);
}

static void *write_some(void *container)
{
	uint64_t seed = (uint64_t)pthread_self() ^ (uint64_t)getpid() << 20;

	for (unsigned i = 0; i < rounds; i++)
		make_version(container, i % 2, next_random(&seed), next_random(&seed) % 2);
	return NULL;
}

/* Both threads use one container. */
static void writer(void *unused)
{
	umobject_container *c = open_box(box(), 0, 0);
	pthread_t other;

	(void)unused;
	check(pthread_create(&other, NULL, write_some, c) == 0);
	write_some(c);
	check(pthread_join(other, NULL) == 0);
	umobject_close(c);
	_exit(0);
}

struct look {
	umobject_container *c;
	const char *name;
	uint64_t last;
};

static int read_version(void *arg, uint64_t version)
{
	struct look *l = arg;
	uint64_t data[ELEMENTS];
	umobject_version *v;

	check(version > l->last);
	l->last = version;
	if (umobject_hold(l->c, l->name, version, &v) < 0) {
		check(errno == ENOENT, "%s", umobject_errormsg());
		return 0;
	}
	check(stat_held(v).version == version);
	good(umobject_read(v, NULL, NULL, data));
	expect_one(data);
	umobject_release(v);
	return 0;
}

static int check_name(void *c, const char *name)
{
	struct look l = { c, name, 0 };

	check(strcmp(name, names[0]) == 0 || strcmp(name, names[1]) == 0);
	good(umobject_versions(c, name, read_version, &l));
	return 0;
}

static void reader(void *unused)
{
	umobject_container *c = open_box(box(), UMOBJECT_READ_ONLY, 0);
	uint64_t last[2] = { 0 };

	(void)unused;
	while (!__atomic_load_n(over, __ATOMIC_ACQUIRE)) {
		for (unsigned i = 0; i < 2; i++) {
			umobject_version *v;

			if (umobject_hold(c, names[i], 0, &v) < 0)
				continue;
			check(stat_held(v).version >= last[i], "the newest version is older than "
			      "the one before");
			last[i] = stat_held(v).version;
			umobject_release(v);
		}
		good(umobject_list(c, check_name, c));
	}
	_exit(0);
}

static void collector(void *unused)
{
	umobject_container *c = open_box(box(), 0, 0);

	(void)unused;
	while (!__atomic_load_n(over, __ATOMIC_ACQUIRE))
		good(umobject_gc(c, NULL));
	_exit(0);
}

static int count_one(void *n, uint64_t version)
{
	(void)version;
	++*(unsigned *)n;
	return 0;
}

int main(void)
{
	umobject_container *c = new_box(KEEP);
	pid_t writers[WRITERS], others[2];
	size_t bytes;

	rounds = (unsigned)by_time(30, 400);
	bytes = (2 * WRITERS * rounds + 1) * sizeof(unsigned);
	numbers[0] = mmap(NULL, 2 * bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			  -1, 0);
	check(numbers[0] != MAP_FAILED);
	numbers[1] = (unsigned *)((char *)numbers[0] + bytes);
	over = (bool *)((char *)numbers[0] + 2 * bytes);
	for (unsigned i = 0; i < WRITERS; i++)
		writers[i] = start_child(writer, NULL);
	others[0] = start_child(reader, NULL);
	others[1] = start_child(collector, NULL);
	for (unsigned i = 0; i < WRITERS; i++)
		check_exits(wait_child(writers[i]), 0);
	__atomic_store_n(over, true, __ATOMIC_RELEASE);
	check_exits(wait_child(others[0]), 0);
	check_exits(wait_child(others[1]), 0);
	for (unsigned i = 0; i < 2; i++) {
		unsigned kept = 0;

		/* No kept version is missing, and no older one is kept. */
		for (unsigned n = 1; n <= 2 * WRITERS * (rounds / 2); n++)
			check(numbers[i][n] == 1, "no version %u", n);
		good(umobject_versions(c, names[i], count_one, &kept));
		check(kept == KEEP, "%u versions", kept);
	}
	good(umobject_gc(c, NULL));
	check(count_stored(VERSIONS) == 2 * KEEP && count_stored(CHUNKS) == 2 * KEEP * 5, "%u "
	      "versions, %u chunks", count_stored(VERSIONS), count_stored(CHUNKS));
	umobject_close(c);
	return 0;
}
