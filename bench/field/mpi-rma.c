/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi-rma - how long a Put or a Get and its flush take from one rank to another that is within MPI, on windows in storage
 * which are in memory as a whole, and on windows in memory: of MPI_Win_create and of MPI_Win_allocate. Every repetition
 * has all windows in turn, so that ratios are of neighbours. What was moved is looked at each time.
 */
#include <getopt.h>

#include "kit/common.h"
#include "job.h"

#define WINDOW (4 * MIB)
#define SIZES_MAX 16
#define CALLS_MAX 1000000

struct options {
	struct alloc alloc;
	const char *dir;
	size_t sizes[SIZES_MAX];
	unsigned count, reps, ms;
};

/* A window and what it is called. */
struct kind {
	const char *name, *engine, *local;
	char *base;
	MPI_Win win;
	unsigned calls[2][SIZES_MAX];  /* in the time that a cell has, put and get */
};

static struct kind kinds[] = {
	{ .name = "create", .engine = "-", .local = "-" },
	{ .name = "allocate", .engine = "-", .local = "-" },
	{ .name = "storage", .engine = "uffd", .local = "false" },
	{ .name = "storage", .engine = "uffd", .local = "true" },
	{ .name = "storage", .engine = "segv", .local = "false" },
	{ .name = "storage", .engine = "segv", .local = "true" },
	{ .name = "storage", .engine = "kernel", .local = "false" },
	{ .name = "storage", .engine = "kernel", .local = "true" },
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

static const char help[] =
"usage: mpirun -n 2 mpi-rma [OPTION ...]\n"
"Measures Put and Get of one rank from and to another, on all kinds of windows.\n"
"  --dir DIR        for scratch files, one for each rank (.)\n"
"  --sizes LIST     of a transfer, up to 4M (8,64,512,4K,32K,256K,1M)\n"
"  --reps N         times that all windows are measured in turn (5)\n"
"  --time MS        that each of them gets (15)\n"
"  --quick          two repetitions of 2 ms for 8 and 4K\n"
"  --help\n"
"CSV goes to stdout: the median of the time of a transfer is for whoever reads it to take.\n";

static char *buffer;

/* ---- Windows ---- */

static void open_storage(struct kind *k, const struct options *o)
{
	char name[4200], type[MPI_MAX_INFO_VAL + 1] = "";
	MPI_Info info;
	int found;

	snprintf(name, sizeof(name), "%s/ummap-%s-%s-%s.%%r", o->dir, getenv("UMMAP_GROUP"), k->engine, k->local);
	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename", name);
	MPI_Info_set(info, "storage_alloc_unlink", "true");
	MPI_Info_set(info, "storage_alloc_discard", "true");
	MPI_Info_set(info, "storage_alloc_engine", k->engine);
	MPI_Info_set(info, "storage_alloc_local", k->local);
	MPI_Win_allocate(WINDOW, 1, info, MPI_COMM_WORLD, &k->base, &k->win);
	MPI_Info_free(&info);
	MPI_Win_get_info(k->win, &info);
	MPI_Info_get(info, "alloc_type", MPI_MAX_INFO_VAL, type, &found);
	MPI_Info_free(&info);
	if (!found || strcmp(type, "storage"))
		die("this program has been linked without the library for MPI windows");
}

static void open_window(struct kind *k, const struct options *o)
{
	if (strcmp(k->name, "storage") == 0) {
		open_storage(k, o);
	} else if (strcmp(k->name, "allocate") == 0) {
		MPI_Win_allocate(WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &k->base, &k->win);
	} else {
		k->base = aligned_alloc(HUGE_PAGE, WINDOW);
		if (!k->base)
			die("there is no memory");
		MPI_Win_create(k->base, WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &k->win);
	}
	/* All of it is there, and may be stored to. */
	memset(k->base, 0, WINDOW);
	MPI_Win_lock_all(0, k->win);
}

static void close_window(struct kind *k)
{
	MPI_Win_unlock_all(k->win);
	MPI_Win_free(&k->win);
	if (strcmp(k->name, "create") == 0)
		free(k->base);
}

/* ---- Measuring ---- */

static void transfer(const struct kind *k, bool put, size_t bytes)
{
	if (put)
		MPI_Put(buffer, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, k->win);
	else
		MPI_Get(buffer, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, k->win);
	MPI_Win_flush(1, k->win);
}

static uint64_t run_calls(const struct kind *k, bool put, size_t bytes, unsigned calls)
{
	uint64_t start = now_ns();

	for (unsigned i = 0; i < calls; i++)
		transfer(k, put, bytes);
	return now_ns() - start;
}

/* How many calls fill the time; also, the first one brings the lock. */
static unsigned calibrate(const struct kind *k, bool put, size_t bytes, unsigned ms)
{
	uint64_t wanted = (uint64_t)ms * 1000000, took = 0;
	unsigned calls = 8;

	while (took < wanted / 4 && calls < CALLS_MAX) {
		calls *= 2;
		took = run_calls(k, put, bytes, calls);
	}
	took = calls * wanted / took;
	return took < 1 ? 1 : took > CALLS_MAX ? CALLS_MAX : (unsigned)took;
}

static void look(const char *p, size_t bytes, char want)
{
	for (size_t i = 0; i < bytes; i++) {
		if (p[i] != want)
			die("byte %zu of a transfer is %d, not %d", i, p[i], want);
	}
}

/* The time of one transfer in ns, at rank 0; the other one waits within MPI. */
static double measure(struct kind *k, const struct options *o, unsigned rep, bool put, unsigned size)
{
	size_t bytes = o->sizes[size];
	unsigned *calls = &k->calls[put][size];
	char mark = (char)(1 + (rep * 2 + put + size) % 100);
	char *mine = job.rank ? k->base : buffer;
	double ns = 0;

	memset(mine, put == !job.rank ? mark : 0, bytes);
	__sync_synchronize();
	MPI_Barrier(MPI_COMM_WORLD);
	if (!job.rank) {
		if (!*calls)
			*calls = calibrate(k, put, bytes, o->ms);
		transfer(k, put, bytes);
		ns = (double)run_calls(k, put, bytes, *calls) / *calls;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	__sync_synchronize();
	look(mine, bytes, mark);
	return ns;
}

static void run(const struct options *o, const char *mpi)
{
	for (unsigned rep = 1; rep <= o->reps; rep++) {
		for (unsigned cell = 0; cell < 2 * o->count; cell++) {
			bool put = cell % 2;

			for (size_t i = 0; i < KINDS; i++) {
				struct kind *k = &kinds[i];
				double ns = measure(k, o, rep, put, cell / 2);

				if (!job.rank)
					printf("%u,%s,%s,%s,%s,%s,%zu,%.4f\n", rep, mpi, k->name, k->engine, k->local,
					       put ? "put" : "get", o->sizes[cell / 2], ns / 1000);
			}
		}
	}
}

static void set_quick(struct options *o)
{
	o->count = parse_sizes("sizes", "8,4K", o->sizes, SIZES_MAX);
	o->reps = 2;
	o->ms = 2;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", 1, 0, 'd' }, { "sizes", 1, 0, 's' }, { "reps", 1, 0, 'r' }, { "time", 1, 0, 't' },
		{ "quick", 0, 0, 'q' }, { "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 's': o->count = parse_sizes("sizes", optarg, o->sizes, SIZES_MAX); break;
		case 'r': o->reps = parse_count("reps", optarg, 1000); break;
		case 't': o->ms = parse_count("time", optarg, 10000); break;
		case 'q': set_quick(o); break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	for (unsigned i = 0; i < o->count; i++) {
		if (o->sizes[i] > WINDOW)
			die("--sizes: a transfer has at most 4M");
	}
}

int main(int argc, char **argv)
{
	struct options o = { .alloc = { .kind = alloc_find("memory") }, .dir = ".", .reps = 5, .ms = 15 };
	char library[MPI_MAX_LIBRARY_VERSION_STRING];
	int len;

	o.count = parse_sizes("sizes", "8,64,512,4K,32K,256K,1M", o.sizes, SIZES_MAX);
	parse_options(&o, argc, argv);
	job_reach_windows();
	job_begin(&o.alloc);
	if (job.ranks != 2)
		die("it needs two ranks: mpirun -n 2 mpi-rma");
	MPI_Get_library_version(library, &len);
	buffer = aligned_alloc(HUGE_PAGE, WINDOW);
	if (!buffer)
		die("there is no memory");
	memset(buffer, 0, WINDOW);
	for (size_t i = 0; i < KINDS; i++)
		open_window(&kinds[i], &o);
	if (!job.rank)
		puts("rep,mpi,window,engine,local,op,bytes,us");
	run(&o, strstr(library, "Open MPI") ? "openmpi" : "mpich");
	for (size_t i = 0; i < KINDS; i++)
		close_window(&kinds[i]);
	free(buffer);
	job_end();
	return 0;
}
