/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that read the same file: with a mapping each (own), with a node copy (copy), and by
 * mmap(2) in a memory cgroup, with the best advice: MADV_SEQUENTIAL in order, and otherwise
 * MADV_WILLNEED for each segment before it is read (mmap). CSV on stdout: bytes that storage has
 * read, and that are in memory at the end, as multiples of those of one process with a node copy;
 * MiB/s of all processes together; and processor time in s. In order, each process reads the whole
 * file. At random and with a zipf distribution, the processes share ROUNDS times as many reads of a
 * segment as the file has segments. At the end, the time of an access to resident data.
 *
 *	nodecopy FILE SIZE BUDGET SEGMENT [REPS [WAYS [PROCESSES]]]
 *
 * makes the file. WAYS and PROCESSES are lists such as copy,mmap and 2.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <ummap.h>

#include "kit/common.h"
#include "kit/data.h"
#include "kit/memcg.h"
#include "kit/zipf.h"

enum { ROUNDS = 4, ACCESSES = 20000000 };
enum order { SEQUENTIAL, RANDOM, ZIPF, ORDERS };
enum way { OWN, COPY, MMAP, WAYS };

static const char *const orders[] = { "sequential", "random", "zipf" };
static const char *const ways[] = { "own", "copy", "mmap" };

static const char *file;
static size_t size, budget, segment;
static struct memcg group;
static const char *wanted_ways = "own,copy,mmap", *wanted_processes = "1,2,4,8";
static unsigned rep;

/* Counters that the processes of one measurement share. */
static struct {
	_Atomic unsigned ready, done;
	_Atomic uint64_t read_bytes, held_bytes;
} *shared;

static void wait_for(_Atomic unsigned *count, unsigned n)
{
	(*count)++;
	while (*count < n)
		usleep(100);
}

/* ---- One process ---- */

static const char *map_file(enum order order, enum way way)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[PATH_MAX + 8];
	void *addr;

	if (way == MMAP) {
		int fd = open_file(file, O_RDONLY);

		addr = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
		if (addr == MAP_FAILED)
			die("mmap");
		madvise(addr, size, order == SEQUENTIAL ? MADV_SEQUENTIAL : MADV_RANDOM);
		close(fd);
		return addr;
	}
	snprintf(uri, sizeof(uri), "posix:%s?direct=always", file);
	attr.seg_size = segment;
	attr.flags = way == COPY ? UMMAP_NODE : 0;
	if (ummap_open(uri, size, 0, PROT_READ, &attr, &addr) < 0)
		die("%s", umerrormsg());
	umadvise(addr, size, order == SEQUENTIAL ? UMMAP_ADV_SEQUENTIAL : UMMAP_ADV_RANDOM);
	return addr;
}

/* Bytes that storage has read for this process (mmap). */
static uint64_t storage_reads(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	unsigned long long n = 0;
	char line[100];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "read_bytes: %llu", &n) != 1)
		;
	if (f)
		fclose(f);
	return n;
}

static void report_process(const char *addr, enum way way, unsigned index)
{
	struct umstat st = { .struct_size = sizeof(st) };

	if (way == MMAP) {
		shared->read_bytes += storage_reads();
		return;
	}
	if (umstat(addr, &st) < 0)
		die("%s", umerrormsg());
	shared->read_bytes += st.read_bytes;
	if (way == OWN || index == 0)
		shared->held_bytes += st.resident_bytes + st.inactive_bytes;
}

/* The segments of all reads; *count: their number. */
static uint32_t *make_order(enum order order, size_t *count)
{
	size_t n = size / segment;
	uint64_t random = 1;
	uint32_t *list;

	*count = order == SEQUENTIAL ? n : ROUNDS * n;
	if (order == ZIPF)
		return zipf_draws((uint32_t)n, *count, 1, 1);
	list = malloc(*count * sizeof(*list));
	for (uint32_t i = 0; i < *count; i++)
		list[i] = order == SEQUENTIAL ? i : (uint32_t)(next_random(&random) % n);
	return list;
}

static void read_file(enum order order, enum way way, unsigned index, unsigned n)
{
	size_t count, step = order == SEQUENTIAL ? 1 : n;
	uint32_t *list = make_order(order, &count);
	const char *addr;

	if (way == MMAP && !memcg_join(&group))
		exit(2);
	addr = map_file(order, way);
	wait_for(&shared->ready, n);
	for (size_t i = order == SEQUENTIAL ? 0 : index; i < count; i += step) {
		const char *at = addr + list[i] * segment;

		if (way == MMAP && order != SEQUENTIAL)
			madvise((void *)at, segment, MADV_WILLNEED);
		sum_words(at, segment);
	}
	wait_for(&shared->done, n);
	report_process(addr, way, index);
	exit(0);
}

/* ---- Measurements ---- */

/* Processor time of the children that have ended, in seconds. */
static double children_seconds(void)
{
	struct rusage used;

	getrusage(RUSAGE_CHILDREN, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void measure(enum order order, enum way way, unsigned n)
{
	static double base[ORDERS][2];
	double seconds = children_seconds();
	uint64_t begin;
	int fd = open_file(file, O_RDONLY), status;
	bool failed = false;

	memset(shared, 0, sizeof(*shared));
	drop_cache(fd, size);
	close(fd);
	for (unsigned i = 0; i < n; i++) {
		if (fork() == 0)
			read_file(order, way, i, n);
	}
	while (shared->ready < n && !failed)
		failed = waitpid(-1, &status, WNOHANG) > 0;
	begin = now_ns();
	while (shared->done < n && !failed) {
		usleep(1000);
		failed = waitpid(-1, &status, WNOHANG) > 0 && shared->done < n;
	}
	begin = now_ns() - begin;
	while (wait(&status) > 0)
		;
	if (failed)
		return;
	if (!base[order][0]) {
		base[order][0] = (double)shared->read_bytes;
		base[order][1] = (double)shared->held_bytes;
	}
	printf("%u,%s,%s,%u,%.3f,%.3f,%.0f,%.2f,\n", rep, orders[order], ways[way], n,
	       (double)shared->read_bytes / base[order][0],
	       (double)shared->held_bytes / base[order][1],
	       (double)(order == SEQUENTIAL ? n : ROUNDS) * (double)size / 1048576.0 /
		       ((double)begin / 1e9), children_seconds() - seconds);
	fflush(stdout);
}

/* ns of an access to a random word of a half of the budget, which is resident. Each address depends
 * on the word before. */
static void measure_access(const char *name, const char *addr)
{
	size_t words = budget / 2 / sizeof(uint64_t);
	uint64_t random = 1, begin;
	volatile uint64_t word = 0;

	for (size_t at = 0; at < budget / 2; at += 4096)
		word = (unsigned char)addr[at];
	begin = now_ns();
	for (unsigned i = 0; i < ACCESSES; i++)
		word = ((const uint64_t *)addr)[(next_random(&random) ^ word) % words];
	begin = now_ns() - begin;
	printf("%u,resident,%s,1,,,,,%.1f\n", rep, name, (double)begin / ACCESSES);
	fflush(stdout);
}

static void measure_accesses(void)
{
	char *memory = mmap(NULL, budget, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	const char *copy = map_file(RANDOM, COPY);

	if (memory == MAP_FAILED)
		die("mmap");
	memset(memory, 1, budget);
	measure_access("memory", memory);
	measure_access("copy", copy);
	umunmap((void *)copy, 0);
	munmap(memory, budget);
}

/* Whether a list such as 2,8 has an item. */
static bool has_item(const char *list, const char *item)
{
	size_t len = strlen(item);

	for (const char *p = list; (p = strstr(p, item)); p += len) {
		if ((p == list || p[-1] == ',') && (!p[len] || p[len] == ','))
			return true;
	}
	return false;
}

static void measure_all(void)
{
	static const enum way turns[] = { COPY, OWN, MMAP };

	for (enum order order = SEQUENTIAL; order < ORDERS; order++) {
		for (unsigned n = 1; n <= 8; n *= 2) {
			char text[16];

			snprintf(text, sizeof(text), "%u", n);
			for (size_t i = 0; i < WAYS && has_item(wanted_processes, text); i++) {
				if (has_item(wanted_ways, ways[turns[i]]))
					measure(order, turns[i], n);
			}
		}
	}
}

int main(int argc, char **argv)
{
	char limit[32], name[32];

	unsigned reps = argc > 5 ? (unsigned)atoi(argv[5]) : 1;

	if (argc < 5)
		die("usage: nodecopy FILE SIZE BUDGET SEGMENT [REPS [WAYS [PROCESSES]]]");
	wanted_ways = argc > 6 ? argv[6] : wanted_ways;
	wanted_processes = argc > 7 ? argv[7] : wanted_processes;
	file = argv[1];
	size = parse_size("SIZE", argv[2]);
	budget = parse_size("BUDGET", argv[3]);
	segment = parse_size("SEGMENT", argv[4]);
	snprintf(limit, sizeof(limit), "%zu", budget);
	setenv("UMMAP_MEM_LIMIT", limit, 1);
	setenv("UMMAP_MEMCONFIG", "static", 1);
	snprintf(name, sizeof(name), "nodecopy.%d", (int)getpid());
	setenv("UMMAP_GROUP", name, 1);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	make_file(file, size);
	if (!memcg_create(&group, budget))
		fprintf(stderr, "nodecopy: no memory cgroup: mmap is left out\n");
	printf("rep,order,way,processes,read,held,mib_per_s,cpu_s,access_ns\n");
	fflush(stdout);
	for (rep = 1; rep <= reps; rep++)
		measure_all();
	for (rep = 1; rep <= reps; rep++)
		measure_accesses();
	memcg_remove(&group);
	return 0;
}
