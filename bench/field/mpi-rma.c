/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi-rma - times of operations from one rank to another that waits in MPI, on windows in storage
 * that are resident, and on windows in memory of MPI_Win_create and MPI_Win_allocate. The
 * operations are put and get with a flush, a get within a lock as coarrays make it, fetch-and-op,
 * get and put of a square of doubles in the corner of a larger one, and making and freeing a
 * window. Each repetition measures all windows in turn, so ratios compare neighboring measurements.
 * The moved data is checked each time.
 */
#include <getopt.h>

#include "kit/common.h"
#include "job.h"

#define WINDOW (4 * MIB)
#define SIZES_MAX 16
#define CALLS_MAX 1000000
#define CELLS_MAX (2 * SIZES_MAX + OPS)
/* A square of so many doubles, and lines of the one that it is in. */
#define SQUARE 64
#define LINE 256

struct options {
	struct alloc alloc;
	const char *dir;
	size_t sizes[SIZES_MAX];
	unsigned count, reps, ms;
};

enum op { GET, PUT, LOCK_GET, FETCH, GET_SQUARE, PUT_SQUARE, MAKE, OPS };

static const char *const names[OPS] = {
	[GET] = "get",
	[PUT] = "put",
	[LOCK_GET] = "lock-get-unlock",
	[FETCH] = "fetch-and-op",
	[GET_SQUARE] = "get-square",
	[PUT_SQUARE] = "put-square",
	[MAKE] = "make-and-free",
};

/* The operations that are measured on each window. */
struct cell {
	enum op op;
	size_t bytes;
};

/* A window and what it is called. */
struct kind {
	const char *name, *engine, *local;
	char *base;
	MPI_Win win;
	unsigned calls[CELLS_MAX];     /* in the time that a cell has */
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
	{ .name = "storage", .engine = "auto", .local = "true" },
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

static const char help[] =
"usage: mpirun -n 2 mpi-rma [OPTION ...]\n"
"Measures one-sided operations of one rank with another, on all kinds of windows.\n"
"  --dir DIR        for scratch files, one for each rank (.)\n"
"  --sizes LIST     of a transfer, up to 4M (8,64,512,4K,32K,256K,1M)\n"
"  --reps N         times that all windows are measured in turn (5)\n"
"  --time MS        that each of them gets (15)\n"
"  --quick          two repetitions of 2 ms, puts and gets of 8 and 4K\n"
"  --help\n"
"CSV goes to stdout: the median of the time of a transfer is for whoever reads it to take.\n";

static char *buffer;
static MPI_Datatype square;

/* ---- Windows ---- */

static void open_storage(struct kind *k, const struct options *o)
{
	static unsigned made;
	char name[4200], type[MPI_MAX_INFO_VAL + 1] = "";
	MPI_Info info;
	int found;

	snprintf(name, sizeof(name), "%s/ummap-%s-%u.%%r", o->dir, getenv("UMMAP_GROUP"), made++);
	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename", name);
	MPI_Info_set(info, "storage_alloc_unlink", "true");
	MPI_Info_set(info, "storage_alloc_discard", "true");
	MPI_Info_set(info, "storage_alloc_engine", k->engine);
	setenv("UMMAP_MPI_LOCAL", k->local, 1);
	MPI_Win_allocate(WINDOW, 1, info, MPI_COMM_WORLD, &k->base, &k->win);
	MPI_Info_free(&info);
	MPI_Win_get_info(k->win, &info);
	MPI_Info_get(info, "alloc_type", MPI_MAX_INFO_VAL, type, &found);
	MPI_Info_free(&info);
	if (!found || strcmp(type, "storage"))
		die("this program has been linked without the library for MPI windows");
}

static void make_window(struct kind *k, const struct options *o)
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
}

static void free_window(struct kind *k)
{
	MPI_Win_free(&k->win);
	if (strcmp(k->name, "create") == 0)
		free(k->base);
}

static void open_window(struct kind *k, const struct options *o)
{
	make_window(k, o);
	/* All of it is there, and may be stored to. */
	memset(k->base, 0, WINDOW);
	MPI_Win_lock_all(0, k->win);
}

static void close_window(struct kind *k)
{
	MPI_Win_unlock_all(k->win);
	free_window(k);
}

/* ---- Measuring ---- */

static bool is_put(enum op op)
{
	return op == PUT || op == PUT_SQUARE;
}

static void transfer(const struct kind *k, const struct cell *c)
{
	const uint64_t one = 1;
	int bytes = (int)c->bytes;

	switch (c->op) {
	case PUT: MPI_Put(buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, k->win); break;
	case PUT_SQUARE: MPI_Put(buffer, bytes, MPI_BYTE, 1, 0, 1, square, k->win); break;
	case GET_SQUARE: MPI_Get(buffer, bytes, MPI_BYTE, 1, 0, 1, square, k->win); break;
	case FETCH: MPI_Fetch_and_op(&one, buffer, MPI_UINT64_T, 1, 0, MPI_SUM, k->win); break;
	default: MPI_Get(buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, k->win); break;
	}
	if (c->op != LOCK_GET)
		MPI_Win_flush(1, k->win);
}

static uint64_t run_calls(const struct kind *k, const struct cell *c, unsigned calls)
{
	uint64_t start = now_ns();

	for (unsigned i = 0; i < calls; i++) {
		if (c->op == LOCK_GET)
			MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, k->win);
		transfer(k, c);
		if (c->op == LOCK_GET)
			MPI_Win_unlock(1, k->win);
	}
	return now_ns() - start;
}

/* How many calls fill the time; also, the first one brings the lock. */
static unsigned choose_count(const struct kind *k, const struct cell *c, unsigned ms)
{
	uint64_t wanted = (uint64_t)ms * 1000000, took = 0;
	unsigned calls = 8;

	while (took < wanted / 4 && calls < CALLS_MAX) {
		calls *= 2;
		took = run_calls(k, c, calls);
	}
	took = calls * wanted / took;
	return took < 1 ? 1 : took > CALLS_MAX ? CALLS_MAX : (unsigned)took;
}

static void inspect_window(const char *p, size_t bytes, char want)
{
	for (size_t i = 0; i < bytes; i++) {
		if (p[i] != want)
			die("byte %zu of a transfer is %d, not %d", i, p[i], want);
	}
}

/* Checks the moved data. Of the square, the first line is checked. */
static void check_data(const struct kind *k, const struct cell *c, char mark, uint64_t calls)
{
	uint64_t sum;

	if (c->op == FETCH) {
		memcpy(&sum, k->base, sizeof(sum));
		if (job.rank && sum != calls)
			die("%llu additions make %llu", (unsigned long long)calls,
			    (unsigned long long)sum);
	} else if (is_put(c->op) == !!job.rank) {
		inspect_window(job.rank ? k->base : buffer,
		     c->op == PUT_SQUARE ? SQUARE * sizeof(double) : c->bytes, mark);
	}
}

/* The time of one call in ns, at rank 0; the other one waits within MPI. */
static double measure_cell(struct kind *k, const struct options *o, unsigned rep,
			   const struct cell *c, unsigned *calls)
{
	char mark = (char)(1 + (rep * OPS + c->op + c->bytes / 8) % 100);
	bool from = is_put(c->op) == !job.rank;
	uint64_t all = 0;
	double ns = 0;

	memset(job.rank ? k->base : buffer, from && c->op != FETCH ? mark : 0,
	       job.rank ? SQUARE * LINE * sizeof(double) + c->bytes : c->bytes);
	__sync_synchronize();
	MPI_Barrier(MPI_COMM_WORLD);
	if (c->op == LOCK_GET)
		MPI_Win_unlock_all(k->win);
	if (!job.rank) {
		if (!*calls)
			*calls = choose_count(k, c, o->ms);
		memset(buffer, from ? mark : 0, c->bytes);
		run_calls(k, c, 1);
		ns = (double)run_calls(k, c, *calls) / *calls;
		memcpy(&all, buffer, sizeof(all));
		all++;
	}
	if (c->op == LOCK_GET)
		MPI_Win_lock_all(0, k->win);
	/* The last operation has returned the value before it. */
	MPI_Bcast(&all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	__sync_synchronize();
	check_data(k, c, mark, all);
	return ns;
}

/* The same for a window more of that kind, as many times as take about as long. */
static double measure_making(const struct kind *k, const struct options *o, unsigned *calls)
{
	struct kind another = *k;
	uint64_t start;

	if (!*calls)
		*calls = o->ms;
	MPI_Barrier(MPI_COMM_WORLD);
	start = now_ns();
	for (unsigned i = 0; i < *calls; i++) {
		make_window(&another, o);
		free_window(&another);
	}
	return (double)(now_ns() - start) / *calls;
}

static unsigned list_cells(const struct options *o, struct cell *cells)
{
	const size_t bytes = SQUARE * SQUARE * sizeof(double);
	unsigned n = 0;

	for (unsigned i = 0; i < o->count; i++) {
		cells[n++] = (struct cell){ GET, o->sizes[i] };
		cells[n++] = (struct cell){ PUT, o->sizes[i] };
	}
	cells[n++] = (struct cell){ LOCK_GET, sizeof(double) };
	cells[n++] = (struct cell){ FETCH, sizeof(uint64_t) };
	cells[n++] = (struct cell){ GET_SQUARE, bytes };
	cells[n++] = (struct cell){ PUT_SQUARE, bytes };
	cells[n++] = (struct cell){ MAKE, 0 };
	return n;
}

static void run_cells(const struct options *o, const char *mpi)
{
	struct cell cells[CELLS_MAX];
	unsigned n = list_cells(o, cells);

	for (unsigned rep = 1; rep <= o->reps; rep++) {
		for (unsigned cell = 0; cell < n; cell++) {
			const struct cell *c = &cells[cell];

			for (size_t i = 0; i < KINDS; i++) {
				struct kind *k = &kinds[i];
				double ns = c->op == MAKE ? measure_making(k, o, &k->calls[cell]) :
					    measure_cell(k, o, rep, c, &k->calls[cell]);

				if (!job.rank)
					printf("%u,%s,%s,%s,%s,%s,%zu,%.4f\n", rep, mpi, k->name,
					       k->engine, k->local, names[c->op], c->bytes,
					       ns / 1000);
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
		{ "dir", 1, 0, 'd' }, { "sizes", 1, 0, 's' }, { "reps", 1, 0, 'r' },
		{ "time", 1, 0, 't' },
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
	struct options o = { .alloc = { .kind = alloc_find("memory") },
			     .dir = ".",
			     .reps = 5,
			     .ms = 15 };
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
	MPI_Type_vector(SQUARE, SQUARE, LINE, MPI_DOUBLE, &square);
	MPI_Type_commit(&square);
	for (size_t i = 0; i < KINDS; i++)
		open_window(&kinds[i], &o);
	if (!job.rank)
		puts("rep,mpi,window,engine,local,op,bytes,us");
	run_cells(&o, strstr(library, "Open MPI") ? "openmpi" : "mpich");
	for (size_t i = 0; i < KINDS; i++)
		close_window(&kinds[i]);
	MPI_Type_free(&square);
	free(buffer);
	job_end();
	return 0;
}
