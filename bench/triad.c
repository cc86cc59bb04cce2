/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads and stores of resident data: a[i] = b[i] + s * c[i] on three arrays in one mapping of the
 * library, and on the same amount of anonymous memory in huge pages, alternately.
 */
#include <getopt.h>
#include <limits.h>

#include "kit/data.h"
#include "ummap.h"

static const char help[] = "usage: triad [OPTION ...]\n"
			   "Bandwidth of a[i] = b[i] + s * c[i] on resident data, of the library "
			   "and of malloc; CSV on stdout.\n"
			   "  --dir DIR      for a scratch file, removed afterwards (./cache)\n"
			   "  --size SIZE    of the three arrays together (256M)\n"
			   "  --seg SEG      segment of the mapping (2M)\n"
			   "  --iters N      the best of these counts (20)\n"
			   "  --reps N       pairs (5)\n"
			   "  --help\n";

struct options {
	const char *dir;
	size_t size, seg;
	unsigned iters, reps;
};

__attribute__((noinline)) static void triad(double *restrict a, const double *restrict b,
					    const double *restrict c, double s, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		a[i] = b[i] + s * c[i];
}

/* Returns the MiB per second of loads and stores in the best iteration. */
static double best_rate(void *memory, const struct options *o)
{
	size_t n = o->size / (3 * sizeof(double)), i;
	double *a = memory, *b = a + n, *c = b + n;
	uint64_t start, ns, least = UINT64_MAX;
	unsigned iter;

	for (i = 0; i < n; i++) {
		a[i] = 0;
		b[i] = (double)(i % 1000);
		c[i] = 2;
	}
	for (iter = 0; iter < o->iters; iter++) {
		start = now_ns();
		triad(a, b, c, iter, n);
		ns = now_ns() - start;
		if (ns < least)
			least = ns;
		for (i = 0; i < n; i += 997)
			if (a[i] != b[i] + iter * 2)
				die("wrong data at %zu", i);
	}
	return (double)(3 * n * sizeof(double)) / (double)MIB / ((double)least * 1e-9);
}

static double on_library(const struct options *o, int fd)
{
	void *addr = NULL;
	double rate;

	if (ummap(o->size, o->seg, PROT_READ | PROT_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr))
		die("ummap: %s", umerrormsg());
	rate = best_rate(addr, o);
	if (umunmap(addr, 0))
		die("umunmap: %s", umerrormsg());
	return rate;
}

static double on_memory(const struct options *o)
{
	void *memory = huge_memory(o->size);
	double rate = best_rate(memory, o);

	munmap(memory, o->size);
	return rate;
}

/* Returns a file without a name, which needs no removal. */
static int scratch_file(const char *dir)
{
	char path[PATH_MAX];
	int fd;

	if (mkdir(dir, 0755) && errno != EEXIST)
		die("%s: %s", dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/triad.XXXXXX", dir);
	fd = mkstemp(path);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	unlink(path);
	return fd;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", 1, 0, 'd' },   { "size", 1, 0, 's' }, { "seg", 1, 0, 'g' },
		{ "iters", 1, 0, 'i' }, { "reps", 1, 0, 'r' }, { "help", 0, 0, 'h' },
		{ 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 's': o->size = parse_size("size", optarg); break;
		case 'g': o->seg = parse_size("seg", optarg); break;
		case 'i': o->iters = parse_count("iters", optarg, 100000); break;
		case 'r': o->reps = parse_count("reps", optarg, 1000); break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (o->size < 64 * KIB)
		die("--size: at least 64K");
}

int main(int argc, char **argv)
{
	struct options o = {
		.dir = "./cache", .size = 256 * MIB, .seg = 2 * MIB, .iters = 20, .reps = 5
	};
	double library, memory;
	char limit[32];
	unsigned rep;
	int fd;

	parse_options(&o, argc, argv);
	snprintf(limit, sizeof(limit), "%zu", 2 * o.size + 16 * o.seg);
	setenv("UMMAP_MEM_LIMIT", limit, 1);
	fd = scratch_file(o.dir);
	puts("rep,ummap_mib_per_s,malloc_mib_per_s,ratio");
	for (rep = 1; rep <= o.reps; rep++) {
		library = on_library(&o, fd);
		memory = on_memory(&o);
		printf("%u,%.0f,%.0f,%.4f\n", rep, library, memory, library / memory);
		fflush(stdout);
	}
	return 0;
}
