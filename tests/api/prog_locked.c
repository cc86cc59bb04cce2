/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that lock their memory with mlockall(2) before or after they map, with each engine, and
 * as a user who may lock little memory. Loads return the stored data, and the pool is not populated
 * beyond the budget.
 */
#include "common.h"
#include "uffd.h"

#include <grp.h>

#define SMALL_SEG (4 * KIB)
/* Bytes that are not frames: tables, rings, buffers of the C library, stacks of threads, whose
 * number depends on the load. MCL_CURRENT populates all of these, and the counters of all processes
 * of the node: 19 MiB. Memory for each frame once more would exceed this with large segments. */
#define SLACK (12 * MIB)
#define SLACK_CURRENT (30 * MIB)
#define BUDGET(seg_size) ((seg_size) > SMALL_SEG ? 24 * MIB : 2 * MIB)
#define USER_LIMIT (4 * MIB)

struct lock {
	const char *name;
	int before, after;   /* flags for mlockall(2); 0: it is not called */
	bool user;           /* the process runs as a user who may lock USER_LIMIT bytes */
};

struct kind {
	const char *name;
	size_t seg_size;
	int engine;
	unsigned flags;
};

struct test {
	const struct lock *lock;
	const struct kind *kind;
};

/* Size of the mapping in bytes. */
static size_t size;

static void store_all(uint8_t *m, uint64_t seed)
{
	for (size_t at = 0; at < size; at += 4 * KIB)
		fill(m + at, 64, at, seed);
}

static void load_all(const uint8_t *m, uint64_t seed)
{
	for (size_t at = 0; at < size; at += 4 * KIB)
		check_bytes(m + at, 64, at, seed);
}

static void become_user(void)
{
	struct rlimit little = { USER_LIMIT, USER_LIMIT };

	check(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
	if (geteuid() == 0)
		check(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
}

static uint8_t *map_it(const struct kind *k, int fd)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *addr;

	attr.seg_size = k->seg_size;
	attr.engine = k->engine;
	attr.flags = k->flags;
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	check(ummap_open(uri, size, 0, READ_WRITE, &attr, &addr) == 0);
	return addr;
}

static size_t used_memory(void)
{
	return status_bytes("RssAnon") + status_bytes("RssShmem");
}

/* The background thread detects the locks and frees what they have populated. */
static void await_memory(size_t most)
{
	double end = now() + 60;

	while (used_memory() > most && now() < end)
		pause_ms(20);
	check(used_memory() <= most, "%zu KiB too much", (used_memory() - most) / KIB);
}

static void locked(void *arg)
{
	const struct test *t = arg;
	const size_t budget = BUDGET(t->kind->seg_size);
	pthread_attr_t attr;
	size_t before;
	uint8_t *m;
	int fd;

	set_budget(budget);
	/* Small segments take long. */
	size = t->kind->seg_size > SMALL_SEG ? 48 * MIB : by_time(3, 16) * MIB;
	fd = filled_file(size, 1);
	/* A locked stack is populated completely. */
	check(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 128 * KIB) == 0);
	check(pthread_setattr_default_np(&attr) == 0);
	check(fchmod(fd, 0666) == 0);
	if (t->lock->user)
		become_user();
	if (t->lock->before)
		check(mlockall(t->lock->before) == 0);
	before = used_memory();
	m = map_it(t->kind, fd);
	load_all(m, 1);
	store_all(m, 2);
	if (t->lock->after)
		check(mlockall(t->lock->after) == 0);
	load_all(m, 2);
	store_all(m, 3);
	load_all(m, 3);
	if (!SANITIZED)
		await_memory(before + budget +
			     (t->lock->after & MCL_CURRENT ? SLACK_CURRENT : SLACK));
	check(umsync(m, 1) == 0);
	check_file(fd, 0, 64, 0, 3);
	check_file(fd, size - 4 * KIB, 64, size - 4 * KIB, 3);
	load_all(m, 3);
	store_all(m, 4);
	check(umunmap(m, 1) == 0);
	for (size_t at = 0; at < size; at += 4 * KIB)
		check_file(fd, at, 64, at, 4);
}

int main(void)
{
	static const struct lock locks[] = {
		{ "MCL_FUTURE", MCL_FUTURE, 0, false },
		{ "MCL_FUTURE | MCL_ONFAULT", MCL_FUTURE | MCL_ONFAULT, 0, false },
		{ "MCL_CURRENT later", 0, MCL_CURRENT, false },
		{ "MCL_CURRENT | MCL_FUTURE later", 0, MCL_CURRENT | MCL_FUTURE, false },
		{ "MCL_FUTURE | MCL_ONFAULT later", 0, MCL_FUTURE | MCL_ONFAULT, false },
		{ "MCL_FUTURE of a user", MCL_FUTURE, 0, true },
	};
	static const struct kind kinds[] = {
		{ "segv, 4 KiB", SMALL_SEG, UMMAP_ENGINE_SEGV, 0 },
		{ "segv, 64 KiB", 64 * KIB, UMMAP_ENGINE_SEGV, 0 },
		{ "segv, shared", 64 * KIB, UMMAP_ENGINE_SEGV, UMMAP_SHARED },
		{ "uffd, 4 KiB", SMALL_SEG, UMMAP_ENGINE_UFFD, 0 },
		{ "uffd, 64 KiB", 64 * KIB, UMMAP_ENGINE_UFFD, 0 },
		{ "sigbus, 4 KiB", SMALL_SEG, UMMAP_ENGINE_SIGBUS, 0 },
		{ "sigbus, 64 KiB", 64 * KIB, UMMAP_ENGINE_SIGBUS, 0 },
	};

	for (size_t l = 0; l < sizeof(locks) / sizeof(*locks); l++) {
		for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
			struct test t = { &locks[l], &kinds[k] };
			double start = now();

			if (kinds[k].engine == UMMAP_ENGINE_UFFD && !has_uffd())
				continue;
			check_exits(run_child(locked, &t), 0);
			printf("%s, %s: %.1f s\n", locks[l].name, kinds[k].name, now() - start);
			fflush(stdout);
		}
	}
	return 0;
}
