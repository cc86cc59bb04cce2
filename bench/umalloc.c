/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A heap of libumalloc that fits into memory, compared with jemalloc, alternately, with two known
 * patterns. larson: threads replace blocks of 16 to 1024 bytes at random, and pass all blocks to a
 * new thread after each generation, as servers do (P. Larson, M. Krishnan: Memory allocation for
 * long-running server applications, ISMM 1998). scratch: each thread frees a block that another
 * thread has allocated next to blocks of other threads, and then allocates, writes and frees one
 * block again and again; allocators that place blocks of different threads in one cache line are
 * slow (E. Berger et al.: Hoard, ASPLOS 2000). Each side runs in its own process.
 */
#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>

#include "kit/common.h"
#include "umalloc.h"

static const char help[] =
"usage: umalloc [OPTION ...]\n"
"Allocations of a heap of libumalloc, and of jemalloc, in memory; CSV on stdout.\n"
"  --jemalloc LIB  what is preloaded to be the other side (libjemalloc.so.2)\n"
"  --threads N     (2)\n"
"  --reps N        pairs (5)\n"
"  --quick         a tenth of the work\n"
"  --help\n";

#define MAX_THREADS 64
#define SLOTS 5000u
#define GENERATIONS 10u
#define REPLACEMENTS 400000u
#define SCRATCHES 2000000u
#define SCRATCH_BYTES 8u
#define SCRATCH_WRITES 100u
#define HEAP ((size_t)1 << 30)

static umalloc_heap *heap; /* NULL: the program uses malloc(3) */
static unsigned threads = 2, divisor = 1;

static void *take(size_t size)
{
	void *p = heap ? umalloc(heap, size) : malloc(size);

	if (!p)
		die("no memory: %s", heap ? umalloc_errormsg() : strerror(errno));
	return p;
}

static void give(void *p)
{
	if (heap)
		ufree(heap, p);
	else
		free(p);
}

/* ---- larson ---- */

struct server {
	pthread_t thread;
	uint64_t random;
	unsigned generation;
	void *slots[SLOTS];
};

static size_t any_size(uint64_t *random)
{
	return 16 + next_random(random) % 1009;
}

static void *serve(void *arg)
{
	struct server *s = arg;

	for (unsigned i = 0; i < REPLACEMENTS / divisor; i++) {
		void **slot = &s->slots[next_random(&s->random) % SLOTS];

		give(*slot);
		*slot = take(any_size(&s->random));
		*(char *)*slot = 1;
	}
	/* The next thread begins before this one has ended. */
	if (++s->generation < GENERATIONS && pthread_create(&s->thread, NULL, serve, s))
		die("no thread can be started");
	return NULL;
}

static double larson(void)
{
	struct server *servers = calloc(threads, sizeof(*servers));
	uint64_t start;
	double ops = (double)threads * GENERATIONS * (REPLACEMENTS / divisor), seconds;

	if (!servers)
		die("no memory");
	for (unsigned t = 0; t < threads; t++) {
		servers[t].random = t + 1;
		for (unsigned i = 0; i < SLOTS; i++)
			servers[t].slots[i] = take(any_size(&servers[t].random));
	}
	start = now_ns();
	for (unsigned t = 0; t < threads; t++)
		if (pthread_create(&servers[t].thread, NULL, serve, &servers[t]))
			die("no thread can be started");
	for (unsigned t = 0; t < threads; t++) {
		for (pthread_t last = 0; last != servers[t].thread;) {
			last = servers[t].thread;
			pthread_join(last, NULL);
		}
	}
	seconds = (double)(now_ns() - start) * 1e-9;
	for (unsigned t = 0; t < threads; t++)
		for (unsigned i = 0; i < SLOTS; i++)
			give(servers[t].slots[i]);
	free(servers);
	return ops / seconds / 1e6;
}

/* ---- scratch ---- */

static void *scratch_one(void *first)
{
	give(first);
	for (unsigned i = 0; i < SCRATCHES / divisor; i++) {
		volatile char *p = take(SCRATCH_BYTES);

		for (unsigned k = 0; k < SCRATCH_WRITES; k++)
			p[k % SCRATCH_BYTES]++;
		give((void *)p);
	}
	return NULL;
}

static double scratch(void)
{
	pthread_t thread[MAX_THREADS];
	void *first[MAX_THREADS];
	uint64_t start = now_ns();

	for (unsigned t = 0; t < threads; t++)
		first[t] = take(SCRATCH_BYTES);
	for (unsigned t = 0; t < threads; t++)
		if (pthread_create(&thread[t], NULL, scratch_one, first[t]))
			die("no thread can be started");
	for (unsigned t = 0; t < threads; t++)
		pthread_join(thread[t], NULL);
	return (double)threads * (SCRATCHES / divisor) / ((double)(now_ns() - start) * 1e-9) / 1e6;
}

/* ---- Turns ---- */

static const struct pattern {
	const char *name;
	double (*run)(void);
} patterns[] = { { "larson", larson }, { "scratch", scratch } };

#define PATTERNS (sizeof(patterns) / sizeof(*patterns))

/* Runs in its own process, and prints the result. */
static void side(const struct pattern *p, bool ours)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;

	setenv("UMMAP_MEM_LIMIT", "2G", 1);
	if (ours) {
		heap = umalloc_create(NULL, HEAP, &attr);
		if (!heap)
			die("umalloc_create: %s", umalloc_errormsg());
	} else if (!dlsym(RTLD_DEFAULT, "mallocx")) {
		die("what was preloaded is no jemalloc: --jemalloc names another one");
	}
	printf("%.3f\n", p->run());
	umalloc_destroy(heap);
}

static double run_side(char *self, const char *preload, const char *name, bool ours)
{
	char command[1000];
	double rate = 0;
	FILE *f;

	snprintf(command, sizeof(command), "LD_PRELOAD='%s' '%s' --threads %u%s --side %s-%s",
		 ours ? "" : preload, self, threads, divisor > 1 ? " --quick" : "",
		 ours ? "ours" : "theirs", name);
	f = popen(command, "r");
	if (!f || fscanf(f, "%lf", &rate) != 1 || pclose(f))
		die("%s: it has failed", command);
	return rate;
}

static void run_named_side(const char *name)
{
	bool ours = strncmp(name, "ours-", 5) == 0;

	for (unsigned i = 0; i < PATTERNS; i++)
		if (strcmp(name + (ours ? 5 : 7), patterns[i].name) == 0)
			side(&patterns[i], ours);
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "jemalloc", 1, 0, 'j' },
		{ "threads", 1, 0, 't' },
		{ "reps", 1, 0, 'r' },
		{ "quick", 0, 0, 'q' },
		{ "side", 1, 0, 's' },
		{ "help", 0, 0, 'h' },
		{ 0, 0, 0, 0 },
	};
	const char *preload = "libjemalloc.so.2", *named = NULL;
	unsigned reps = 5;
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'j': preload = optarg; break;
		case 't': threads = parse_count("threads", optarg, MAX_THREADS); break;
		case 'r': reps = parse_count("reps", optarg, 1000); break;
		case 'q': divisor = 10; break;
		case 's': named = optarg; break;
		case 'h': fputs(help, stdout); return 0;
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (named) {
		run_named_side(named);
		return 0;
	}
	puts("rep,pattern,threads,jemalloc_mops,umalloc_mops,ratio");
	for (unsigned rep = 1; rep <= reps; rep++) {
		for (unsigned i = 0; i < PATTERNS; i++) {
			double theirs = run_side(argv[0], preload, patterns[i].name, false);
			double ours = run_side(argv[0], preload, patterns[i].name, true);

			printf("%u,%s,%u,%.3f,%.3f,%.3f\n", rep, patterns[i].name, threads, theirs,
			       ours, ours / theirs);
			fflush(stdout);
		}
	}
	return 0;
}
