/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads and stores in place: a[i] = b[i] + s * c[i] on three arrays in one file on tmpfs, mapped
 * with the driver pmem, to which byte granularity is forced, and with mmap(2), alternately. Both
 * access the same pages.
 */
#include <getopt.h>
#include <limits.h>

#include "kit/data.h"
#include "ummap.h"

static const char help[] = "usage: pmem [OPTION ...]\n"
			   "Bandwidth of a[i] = b[i] + s * c[i] on a file in memory, of pmem: in "
			   "place and of mmap; CSV on stdout.\n"
			   "  --dir DIR      for a scratch file, removed at once (/dev/shm)\n"
			   "  --size SIZE    of the three arrays together (256M)\n"
			   "  --iters N      the best of these counts (20)\n"
			   "  --reps N       pairs (5)\n"
			   "  --help\n";

struct options {
	const char *dir;
	size_t size;
	unsigned iters, reps;
};

__attribute__((noinline)) static void triad(double *restrict a, const double *restrict b,
					    const double *restrict c, double s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		a[i] = b[i] + s * c[i];
}

/* Returns the MiB per second of loads and stores in the best iteration. */
static double best_rate(double *memory, const struct options *o)
{
	size_t n = o->size / (3 * sizeof(double));
	double *a = memory, *b = a + n, *c = b + n;
	uint64_t start, ns, least = UINT64_MAX;

	for (size_t i = 0; i < n; i++) {
		a[i] = 0;
		b[i] = (double)(i % 1000);
		c[i] = 2;
	}
	for (unsigned iter = 0; iter < o->iters; iter++) {
		start = now_ns();
		triad(a, b, c, iter, n);
		ns = now_ns() - start;
		least = ns < least ? ns : least;
		for (size_t i = 0; i < n; i += 997)
			if (a[i] != b[i] + iter * 2)
				die("wrong data at %zu", i);
	}
	return (double)(3 * n * sizeof(double)) / (double)MIB / ((double)least * 1e-9);
}

static double on_library(const struct options *o, int fd)
{
	struct umstat st = { .struct_size = sizeof(st) };
	char uri[64];
	void *addr;
	double rate;

	snprintf(uri, sizeof(uri), "pmem:/proc/self/fd/%d?granularity=byte", fd);
	if (ummap_open(uri, o->size, 0, PROT_READ | PROT_WRITE, NULL, &addr))
		die("ummap_open: %s", umerrormsg());
	rate = best_rate(addr, o);
	if (umstat(addr, &st) || st.write_faults + st.read_faults)
		die("the mapping is not in place");
	if (umunmap(addr, 0))
		die("umunmap: %s", umerrormsg());
	return rate;
}

static double on_kernel(const struct options *o, int fd)
{
	void *addr = mmap(NULL, o->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	double rate;

	if (addr == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	rate = best_rate(addr, o);
	munmap(addr, o->size);
	return rate;
}

/* Returns a file without a name, which needs no removal. */
static int scratch_file(const struct options *o)
{
	int fd = open_file(o->dir, O_RDWR | O_TMPFILE);

	if (ftruncate(fd, (off_t)o->size))
		die("%s: %s", o->dir, strerror(errno));
	return fd;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", 1, 0, 'd' },  { "size", 1, 0, 's' }, { "iters", 1, 0, 'i' },
		{ "reps", 1, 0, 'r' }, { "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 's': o->size = parse_size("size", optarg); break;
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

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct options o = { .dir = "/dev/shm", .size = 256 * MIB, .iters = 20, .reps = 5 };
	double library, kernel, *ratio;
	int fd;

	parse_options(&o, argc, argv);
	setenv("PMEM2_FORCE_GRANULARITY", "byte", 1);
	fd = scratch_file(&o);
	ratio = calloc(o.reps, sizeof(*ratio));
	puts("rep,ummap_mib_per_s,mmap_mib_per_s,ratio");
	for (unsigned rep = 0; rep < o.reps; rep++) {
		/* The first method of a pair has the colder machine. */
		if (rep % 2)
			kernel = on_kernel(&o, fd);
		library = on_library(&o, fd);
		if (rep % 2 == 0)
			kernel = on_kernel(&o, fd);
		ratio[rep] = library / kernel;
		printf("%u,%.0f,%.0f,%.3f\n", rep + 1, library, kernel, ratio[rep]);
		fflush(stdout);
	}
	qsort(ratio, o.reps, sizeof(*ratio), by_size);
	fprintf(stderr, "median ratio %.3f (wanted: 0.98)\n", ratio[o.reps / 2]);
	free(ratio);
	return 0;
}
