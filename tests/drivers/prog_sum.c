/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_sum - mappings of a store behind sum+: after kill -9 at any moment, each load succeeds, and
 * has what the last umsync made durable, or later stores. A load of a damaged block raises SIGBUS,
 * and umcopy returns EIO. The command `ummap sum` makes checksums, and finds the damage.
 *
 *	prog_sum [ROUNDS [SEED]]
 */
#include <pthread.h>

#include "common.h"
#include "ummap-driver.h"
#include "versions.h"

#define ROUNDS 20

static char store[320], sums[330];
static const char *filters; /* beginning of the URI, such as "sum+posix" */

static uint64_t *map_store(int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "%s:%s", filters, store);
	check(ummap_open(uri, SIZE, 0, prot, &attr, &addr) == 0, "%s", umerrormsg());
	return addr;
}

static void make_store(void)
{
	uint64_t *words = malloc(SIZE);
	int fd = temp_named("store", 0, store);

	put_version(words, 0);
	check(write(fd, words, SIZE) == (ssize_t)SIZE);
	close(fd);
	free(words);
	snprintf(sums, sizeof(sums), "%s.sum", store);
	unlink(sums);
}

/* ---- kill -9 ---- */

static void store_and_sync(void *durable)
{
	uint64_t *words;

	set_budget(SIZE / 8);
	words = map_store(READ_WRITE);
	/* Segments of the version under way were written by evictions. */
	check_version(words, *(uint64_t *)durable, *(uint64_t *)durable + 2);
	sync_versions(words, *(uint64_t *)durable + 1);
}

static void check_kills(uint64_t *random, unsigned rounds)
{
	uint64_t durable = 0;

	make_store();
	for (unsigned i = 0; i < rounds; i++)
		kill_during_syncs(store_and_sync, &durable, random, &durable);
}

/* ---- Threads ---- */

#define THREADS 4
#define ROUNDS_OF_THREADS 30

static uint64_t *shared;

/* Stores to words of its own, which are in the same segments as those of other threads. The library
 * may copy the words meanwhile, as a device would. */
__attribute__((no_sanitize("thread"))) static void *use_own_words(void *number)
{
	size_t own = (size_t)(uintptr_t)number;

	for (uint64_t round = 1; round <= ROUNDS_OF_THREADS; round++) {
		for (size_t i = own; i < SIZE / 8; i += THREADS * 31) {
			check(shared[i] >> 32 == round - 1 && (uint32_t)shared[i] == i);
			shared[i] = round << 32 | i;
		}
		if (own == 0)
			check(umsync(shared, 0) == 0, "%s", umerrormsg());
	}
	return NULL;
}

static void run_threads(void *unused)
{
	pthread_t threads[THREADS];

	(void)unused;
	set_budget(SIZE / 4);
	shared = map_store(READ_WRITE);
	for (uintptr_t i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, use_own_words, (void *)i) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	check(umunmap(shared, 1) == 0, "%s", umerrormsg());
	shared = map_store(PROT_READ);
	check_version(shared, 0, ROUNDS_OF_THREADS);
	check(umunmap(shared, 0) == 0);
}

/* ---- Damage ---- */

/* The command ummap stands beside the folder of this program. */
static void run_tool(void *verb)
{
	char tool[400];
	ssize_t len = readlink("/proc/self/exe", tool, 320);
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	check(len > 0 && len < 320 && fd >= 0 && dup2(fd, 1) == 1);
	tool[len] = '\0';
	strcpy(strrchr(tool, '/'), "/../ummap");
	execl(tool, "ummap", "sum", verb, store, NULL);
	_exit(127);
}

static void load_damaged(void *unused)
{
	uint64_t *words, word;

	(void)unused;
	set_budget(2 * SIZE);
	words = map_store(PROT_READ);
	check(words[0] == 0 && words[SIZE / 16 + SEG / 8] == SIZE / 16 + SEG / 8);
	check(umcopy(&word, &words[SIZE / 16], 8) < 0 && errno == EIO, "%d", errno);
	signal(SIGBUS, SIG_DFL);
	word = words[SIZE / 16];
	_exit((int)word);
}

static void check_damage(void)
{
	struct timespec times[2] = { { 0, UTIME_OMIT }, { 0, 0 } };
	struct stat st;
	int fd;

	make_store();
	filters = "sum+posix";
	check_exits(run_child(run_tool, "check"), 2);
	check_exits(run_child(run_tool, "make"), 0);
	check_exits(run_child(run_tool, "check"), 0);
	fd = open(store, O_RDWR | O_CLOEXEC);
	check(fd >= 0 && fstat(fd, &st) == 0 && pwrite(fd, "x", 1, SIZE / 2 + 3) == 1);
	times[1] = st.st_mtim;
	check(futimens(fd, times) == 0 && close(fd) == 0);
	check_exits(run_child(run_tool, "make"), 0);
	check_exits(run_child(run_tool, "check"), 1);
	check_killed(run_child(load_damaged, NULL), SIGBUS);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : by_time(ROUNDS, 200);
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	bool uring = has_driver("uring");

	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	check_damage();
	for (int i = 0; i <= uring; i++) {
		filters = i ? "sum+uring" : "sum+posix";
		make_store();
		check_exits(run_child(run_threads, NULL), 0);
		check_kills(&seed, rounds / (2 + uring));
	}
	filters = "sum+wal+posix";
	check_kills(&seed, rounds / (2 + uring));
	return 0;
}
