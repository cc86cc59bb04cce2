/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects - the costs of arrays as objects and as plain files with the same bytes and the same
 * durability, in turn: puts of arrays in chunks of several sizes, gets of parts, many small
 * objects, mapped objects, and the skeleton application of Chien et al. (2018), in which several
 * processes compute in cycles, and write an output after every fifth cycle.
 */
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>

#include "kit/data.h"
#include "ummap-object.h"
#include "ummap.h"

static const char help[] =
"usage: objects [OPTION ...]\n"
"Times of objects and of plain files; CSV on stdout: of put and small rates, else times.\n"
"  --dir DIR      for containers and files, which are removed (./cache)\n"
"  --only LIST    figures: put,get,small,mapped,skeleton\n"
"  --size SIZE    of the arrays that are put (64M); of those that are read, four times as much\n"
"  --count N      small objects (10000)\n"
"  --ranks LIST   processes of the skeleton application (1,2,4)\n"
"  --cycles N     of it (200)\n"
"  --store STORE  only put, into this container instead of one in a folder, such as\n"
"                 rados:POOL/NAME?conf=FILE\n"
"  --chunk SIZE   only put, with chunks of SIZE bytes instead of squares of 256, 512 and 1024\n"
"                 doubles\n"
"  --reps N       pairs (5)\n"
"  --help\n";

#define SMALL 4096
#define MOST_RANKS 64

static struct options {
	const char *dir, *only, *store;
	size_t size, chunk, ranks[8];
	unsigned count, cycles, reps, nranks;
} options = {
	"cache", "put,get,small,mapped,skeleton", NULL, 64 * MIB, 0, { 1, 2, 4 }, 10000, 200, 5, 3
};

static char box[PATH_MAX], folder[PATH_MAX];
static char *data;

static void check_object(int result, const char *what)
{
	if (result < 0)
		die("%s: %s", what, umobject_errormsg());
}

static umobject_container *open_box(void)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;

	attr.flags = UMOBJECT_CREATE;
	check_object(umobject_open(options.store ? options.store : box, &attr, &c), box);
	return c;
}

static int sync_folder(const char *path)
{
	int fd = open_file(path, O_RDONLY | O_DIRECTORY), result = fsync(fd);

	close(fd);
	return result;
}

static void print_row(unsigned rep, const char *figure, const char *of, double plain, double object,
		double ratio)
{
	printf("%u,%s,%s,%.4g,%.4g,%.3f\n", rep, figure, of, plain, object, ratio);
	fflush(stdout);
}

/* ---- Puts ---- */

/* A file for each chunk: all are written, and then all are made durable. */
static double put_plain(size_t chunk)
{
	unsigned n = (unsigned)(options.size / chunk), i;
	int *fds = malloc(n * sizeof(*fds));
	uint64_t begin;
	char path[PATH_MAX + 32];

	mkdir(folder, 0777);
	begin = now_ns();
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/chunk.%u", folder, i);
		fds[i] = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
		write_whole(fds[i], data + i * chunk, chunk, 0);
		sync_file_range(fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
	}
	for (i = 0; i < n; i++)
		if (fsync(fds[i]) < 0 || close(fds[i]) < 0)
			die("%s: fsync: %s", folder, strerror(errno));
	if (sync_folder(folder) < 0)
		die("%s: fsync: %s", folder, strerror(errno));
	begin = now_ns() - begin;
	free(fds);
	remove_all(folder);
	return (double)options.size / MIB / ((double)begin / 1e9);
}

static double put_object(umobject_container *c, size_t chunk)
{
	struct umobject_shape shape = { .type = UMOBJECT_DOUBLE,
					.rank = 1,
					.dims = { options.size / 8 },
					.chunk = { chunk / 8 } };
	uint64_t begin = now_ns(), i;
	umobject_put *p;

	check_object(umobject_begin(c, "array", &shape, &p, NULL), "begin");
	for (i = 0; i < options.size / chunk; i++)
		check_object(umobject_put_chunk(p, i, data + i * chunk), "put");
	check_object(umobject_commit(p, 0, NULL), "commit");
	begin = now_ns() - begin;
	check_object(umobject_delete(c, "array"), "delete");
	check_object(umobject_gc(c, NULL), "gc");
	return (double)options.size / MIB / ((double)begin / 1e9);
}

static void put_figure(unsigned rep)
{
	static const size_t squares[] = { 256, 512, 1024 };
	umobject_container *c = open_box();
	char of[32];

	for (unsigned i = 0; i < (options.chunk ? 1 : 3); i++) {
		size_t chunk =
			options.chunk ? options.chunk : squares[i] * squares[i] * sizeof(double);
		double plain = put_plain(chunk), object = put_object(c, chunk);

		snprintf(of, sizeof(of), options.chunk ? "%zu" : "%zu^2",
			 options.chunk ? options.chunk : squares[i]);
		print_row(rep, options.store ? "put-store" : "put", of, plain, object,
			  object / plain);
	}
	umobject_close(c);
}

/* ---- Gets ---- */

#define SIDE 4096
#define PARTS 200

static void part_at(uint64_t *seed, const uint64_t *count, uint64_t *start)
{
	for (unsigned d = 0; d < 2; d++)
		start[d] = next_random(seed) % (SIDE - count[d] + 1);
}

static double get_plain(int fd, const uint64_t *count, uint64_t seed, double *to)
{
	uint64_t start[2], begin = now_ns();

	for (unsigned i = 0; i < PARTS; i++) {
		part_at(&seed, count, start);
		/* Rows that are whole stand together. */
		if (count[1] == SIDE)
			read_whole(fd, to, count[0] * SIDE * sizeof(double),
				   start[0] * SIDE * sizeof(double));
		else
			for (uint64_t r = 0; r < count[0]; r++)
				read_whole(fd, to + r * count[1], count[1] * sizeof(double),
					   ((start[0] + r) * SIDE + start[1]) * sizeof(double));
	}
	return (double)(now_ns() - begin) / PARTS / 1e3;
}

static double get_object(umobject_version *v, const uint64_t *count, uint64_t seed, double *to)
{
	uint64_t start[2], begin = now_ns();

	for (unsigned i = 0; i < PARTS; i++) {
		part_at(&seed, count, start);
		check_object(umobject_read(v, start, count, to), "get");
	}
	return (double)(now_ns() - begin) / PARTS / 1e3;
}

/* An array of doubles in a file, and as an object in chunks of 512 by 512. */
static void get_figure(unsigned rep)
{
	static const struct { const char *name; uint64_t count[2]; } parts[] = {
		{ "rows-64", { 64, SIDE } }, { "box-256", { 256, 256 } },
		{ "box-1024", { 1024, 1024 } }, { "box-64", { 64, 64 } },
	};
	struct umobject_shape shape = { .type = UMOBJECT_DOUBLE,
					.rank = 2,
					.dims = { SIDE, SIDE },
					.chunk = { 512, 512 } };
	size_t bytes = (size_t)SIDE * SIDE * sizeof(double);
	umobject_container *c = open_box();
	double *array = (double *)huge_memory(bytes), *to = malloc(bytes);
	umobject_version *v;
	char path[PATH_MAX + 32];
	int fd;

	fill_words(array, bytes, 0, FILE_SALT);
	check_object(umobject_put_array(c, "array", &shape, array), "put");
	mkdir(folder, 0777);
	snprintf(path, sizeof(path), "%s/array", folder);
	fd = open_file(path, O_RDWR | O_CREAT | O_TRUNC);
	write_whole(fd, array, bytes, 0);
	check_object(umobject_hold(c, "array", 0, &v), "hold");
	check_object(umobject_read(v, NULL, NULL, to), "get");
	if (memcmp(to, array, bytes) != 0)
		die("the object is another one than was put");
	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		double plain = get_plain(fd, parts[i].count, rep, to),
		       object = get_object(v, parts[i].count, rep, to);

		print_row(rep, "get", parts[i].name, plain, object, object / plain);
	}
	umobject_release(v);
	umobject_close(c);
	close(fd);
	free(to);
	munmap(array, bytes);
	remove_all(folder);
	remove_all(box);
}

/* ---- Small ones ---- */

/* As durable and as whole as a put: a file of another name, renamed. */
static double small_plain(void)
{
	char path[PATH_MAX + 32], temporary[PATH_MAX + 32];
	uint64_t begin;

	mkdir(folder, 0777);
	begin = now_ns();
	for (unsigned i = 0; i < options.count; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%u", folder, i);
		snprintf(temporary, sizeof(temporary), "%s/new", folder);
		fd = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
		write_whole(fd, data + (size_t)i % 1024 * SMALL, SMALL, 0);
		if (fsync(fd) < 0 || close(fd) < 0 || rename(temporary, path) < 0 ||
		    sync_folder(folder) < 0)
			die("%s: %s", path, strerror(errno));
	}
	begin = now_ns() - begin;
	remove_all(folder);
	return options.count / ((double)begin / 1e9);
}

static double small_object(void)
{
	struct umobject_shape shape = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { SMALL } };
	umobject_container *c = open_box();
	char name[32];
	uint64_t begin = now_ns();

	for (unsigned i = 0; i < options.count; i++) {
		snprintf(name, sizeof(name), "%u", i);
		check_object(umobject_put_array(c, name, &shape, data + (size_t)i % 1024 * SMALL),
			     "put");
	}
	begin = now_ns() - begin;
	umobject_close(c);
	remove_all(box);
	return options.count / ((double)begin / 1e9);
}

static void small_figure(unsigned rep)
{
	double plain = small_plain(), object = small_object();

	print_row(rep, "small", "4096", plain, object, object / plain);
}

/* ---- Mapped ones ---- */

#define READS 20000

static double read_mapped(const char *uri, size_t size, size_t seg, uint64_t seed)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	volatile const char *base;
	uint64_t begin;
	void *addr;

	attr.seg_size = seg;
	attr.budget = size / 4;
	if (ummap_open(uri, size, 0, PROT_READ, &attr, &addr))
		die("%s: %s", uri, umerrormsg());
	base = addr;
	begin = now_ns();
	for (unsigned i = 0; i < READS; i++)
		(void)base[next_random(&seed) % size];
	begin = now_ns() - begin;
	if (umunmap(addr, 0))
		die("umunmap: %s", umerrormsg());
	return READS / ((double)begin / 1e9);
}

static void mapped_figure(unsigned rep)
{
	static const size_t segs[] = { 64 * KIB, 256 * KIB };
	size_t size = 4 * options.size;
	struct umobject_shape shape = { .type = UMOBJECT_UINT8,
					.rank = 1,
					.dims = { size },
					.chunk = { 4 * MIB } };
	umobject_container *c = open_box();
	char *bytes = huge_memory(size), uri[PATH_MAX + 64], path[PATH_MAX + 32], of[32];
	int fd;

	fill_words(bytes, size, 0, FILE_SALT);
	check_object(umobject_put_array(c, "array", &shape, bytes), "put");
	umobject_close(c);
	mkdir(folder, 0777);
	snprintf(path, sizeof(path), "%s/array", folder);
	fd = open_file(path, O_RDWR | O_CREAT | O_TRUNC);
	write_whole(fd, bytes, size, 0);
	fsync(fd);
	close(fd);
	munmap(bytes, size);
	for (unsigned i = 0; i < 2; i++) {
		double plain, object;

		snprintf(uri, sizeof(uri), "posix:%s", path);
		plain = read_mapped(uri, size, segs[i], rep);
		snprintf(uri, sizeof(uri), "object:%s/array", box);
		object = read_mapped(uri, size, segs[i], rep);
		snprintf(of, sizeof(of), "%zuK", segs[i] / KIB);
		print_row(rep, "mapped", of, plain, object, object / plain);
	}
	remove_all(folder);
	remove_all(box);
}

/* ---- The skeleton application ---- */

struct job {
	pthread_barrier_t all;
	struct umobject_id id;
	uint64_t computing; /* nanoseconds of a cycle */
	unsigned ranks;
	size_t side;        /* of a chunk of integers: one for each rank */
	bool objects;
};

/* Each phase has a name of its own, as each has a place of its own in the file. */
static void output_object(umobject_container *c, struct job *j, unsigned rank, unsigned phase)
{
	struct umobject_shape shape = { .type = UMOBJECT_INT32,
					.rank = 2,
					.dims = { j->ranks * j->side, j->side },
					.chunk = { j->side, j->side } };
	umobject_put *p;
	char name[32];

	snprintf(name, sizeof(name), "phase.%u", phase);
	if (rank == 0)
		check_object(umobject_begin(c, name, &shape, &p, &j->id), "begin");
	pthread_barrier_wait(&j->all);
	if (rank > 0)
		check_object(umobject_join(c, &j->id, &p), "join");
	check_object(umobject_put_chunk(p, rank, data), "put");
	if (rank > 0)
		check_object(umobject_put_end(p), "end");
	pthread_barrier_wait(&j->all);
	if (rank == 0)
		check_object(umobject_commit(p, 0, NULL), "commit");
	pthread_barrier_wait(&j->all);
}

static void output_file(int fd, struct job *j, unsigned rank, unsigned phase)
{
	size_t bytes = j->side * j->side * sizeof(int32_t);

	write_whole(fd, data, bytes, (phase * j->ranks + rank) * bytes);
	if (fsync(fd) < 0)
		die("fsync: %s", strerror(errno));
	pthread_barrier_wait(&j->all);
}

static void run_rank(struct job *j, unsigned rank)
{
	umobject_container *c = j->objects ? open_box() : NULL;
	int fd = j->objects ? -1 : open_file(folder, O_RDWR | O_CREAT);

	for (unsigned cycle = 1; cycle <= options.cycles; cycle++) {
		if (j->computing)
			spend_ns(j->computing);
		if (cycle % 5)
			continue;
		if (j->objects)
			output_object(c, j, rank, cycle / 5);
		else
			output_file(fd, j, rank, cycle / 5);
	}
	exit(0);
}

/* Seconds for all of it. */
static double start_job(unsigned ranks, size_t side, bool objects, uint64_t computing)
{
	struct job *j =
		mmap(NULL, sizeof(*j), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;
	uint64_t begin;
	int status;

	if (j == MAP_FAILED)
		die("no memory for a job");
	if (objects)
		umobject_close(open_box());
	j->ranks = ranks;
	j->side = side;
	j->objects = objects;
	j->computing = computing;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&j->all, &attr, ranks);
	begin = now_ns();
	for (unsigned rank = 0; rank < ranks; rank++)
		if (fork() == 0)
			run_rank(j, rank);
	while (wait(&status) > 0)
		if (status)
			die("a process of the skeleton application failed");
	begin = now_ns() - begin;
	munmap(j, sizeof(*j));
	remove_all(objects ? box : folder);
	return (double)begin / 1e9;
}

/* Computing takes three times as long as the output to a file does. */
static void skeleton_figure(unsigned rep)
{
	static const size_t sides[] = { 256, 512, 1024 };
	char of[32];

	for (unsigned i = 0; i < options.nranks; i++) {
		for (unsigned k = 0; k < 3; k++) {
			unsigned ranks = (unsigned)options.ranks[i];
			uint64_t computing = (uint64_t)(start_job(ranks, sides[k], false, 0) /
							options.cycles * 3e9);
			double plain = start_job(ranks, sides[k], false, computing),
			       object = start_job(ranks, sides[k], true, computing);

			snprintf(of, sizeof(of), "%u-%zu^2", ranks, sides[k]);
			print_row(rep, "skeleton", of, plain, object, plain / object);
		}
	}
}

/* ---- All ---- */

static const struct {
	const char *name;
	void (*run)(unsigned rep);
} figures[] = { { "put", put_figure },
		{ "get", get_figure },
		{ "small", small_figure },
		{ "mapped", mapped_figure },
		{ "skeleton", skeleton_figure } };

enum { DIR_IS = 256, ONLY, SIZE, COUNT, RANKS, CYCLES, STORE, CHUNK, REPS, HELP };

static const struct option long_options[] = {
	{ "dir", 1, NULL, DIR_IS }, { "only", 1, NULL, ONLY }, { "size", 1, NULL, SIZE },
	{ "count", 1, NULL, COUNT }, { "ranks", 1, NULL, RANKS }, { "cycles", 1, NULL, CYCLES },
	{ "store", 1, NULL, STORE }, { "chunk", 1, NULL, CHUNK }, { "reps", 1, NULL, REPS },
	{ "help", 0, NULL, HELP },
	{ NULL, 0, NULL, 0 },
};

static void take_option(int what)
{
	switch (what) {
	case DIR_IS: options.dir = optarg; break;
	case ONLY: options.only = optarg; break;
	case SIZE: options.size = parse_size("size", optarg); break;
	case COUNT: options.count = parse_count("count", optarg, 10000000); break;
	case RANKS: options.nranks = parse_sizes("ranks", optarg, options.ranks, 8); break;
	case CYCLES: options.cycles = parse_count("cycles", optarg, 1000000); break;
	case STORE: options.store = optarg; options.only = "put"; break;
	case CHUNK: options.chunk = parse_size("chunk", optarg); options.only = "put"; break;
	case REPS: options.reps = parse_count("reps", optarg, 1000); break;
	case HELP: fputs(help, stdout); exit(0);
	default: exit(2);
	}
}

static bool is_wanted(const char *name)
{
	const char *at = strstr(options.only, name);

	return at && (at == options.only || at[-1] == ',') &&
	       (at[strlen(name)] == ',' || !at[strlen(name)]);
}

int main(int argc, char **argv)
{
	int what;

	while ((what = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		take_option(what);
	if (options.size % (8 * MIB) ||
	    (options.chunk && (options.chunk % 8 || options.size % options.chunk)))
		die("--size is in steps of 8M, and of --chunk, which is in steps of 8");
	for (unsigned i = 0; i < options.nranks; i++)
		if (options.ranks[i] > MOST_RANKS)
			die("--ranks are at most %d", MOST_RANKS);
	/* Files in the page cache need no load, and loads are compared. */
	setenv("UMMAP_CACHED", "copy", 0);
	snprintf(box, sizeof(box), "%s/objects.%d.box", options.dir, (int)getpid());
	snprintf(folder, sizeof(folder), "%s/objects.%d.plain", options.dir, (int)getpid());
	data = huge_memory(options.size);
	fill_words(data, options.size, 0, FILE_SALT);
	puts("rep,figure,of,plain,object,ratio");
	for (unsigned rep = 1; rep <= options.reps; rep++)
		for (unsigned i = 0; i < sizeof(figures) / sizeof(*figures); i++)
			if (is_wanted(figures[i].name))
				figures[i].run(rep);
	if (!options.store)
		remove_all(box);
	return 0;
}
