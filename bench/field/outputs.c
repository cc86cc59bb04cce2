/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * outputs - the skeleton application of Chien et al. (2018) with MPI. It computes in cycles, and
 * all ranks write an output after every fifth cycle: as objects, by parallel HDF5 to one shared
 * file, by calls of MPI-IO, or by commits of a mapping of the file. Each chunk may have a size of
 * its own, as the particles of a rank have.
 */
#include <fcntl.h>
#include <getopt.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kit/data.h"
#include "job.h"
#include "outputs.h"
#include "report.h"
#include "ummap-object-mpi.h"
#include "ummap.h"

static const char help[] =
"usage: mpirun outputs [OPTION ...]\n"
"Cycles of computation, of which each fifth ends with a durable output.\n"
"  -m METHOD        objects, mpiio, mpiio-all, mpiio-async, mpiio-shared, commit, none,\n"
"                   hdf5 or hdf5-collective (objects)\n"
"  --driver URI     -m commit: drivers in front of the path (posix:)\n"
"  -o PATH          container, or file; removed behind (outputs)\n"
"  --side N         doubles of a side of a rank's chunk, in steps of 8 (512)\n"
"  --irregular      chunks of 1/4 to 7/4 of that size; not for objects and hdf5\n"
"  --cycles N       (200)\n"
"  --computing US   microseconds of a cycle (0)\n"
"  --json FILE      add a line to FILE\n"
"  --help\n";

struct options {
	struct outputs outputs;
	const struct output_method *method;
	const char *json;
	unsigned cycles, computing;
};

enum { EACH = 5 };

/* ---- Chunks ---- */

static size_t max_chunk_bytes(const struct outputs *o)
{
	size_t doubles = o->side * o->side;

	return (o->irregular ? doubles / 4 * 7 : doubles) * sizeof(double);
}

/* Number of doubles in a chunk, a multiple of 8: a particle has as many. */
static size_t doubles_of(const struct outputs *o, unsigned output, int of)
{
	size_t doubles = o->side * o->side;
	uint64_t random = ((uint64_t)output << 32) + (unsigned)of + 1;

	return o->irregular ? doubles / 4 + next_random(&random) % (doubles / 4 * 6 / 8) * 8 :
			      doubles;
}

/* The place of a chunk in a file in which all chunks follow each other. The words of the chunk
 * depend on it, too. */
static MPI_Offset place_of(const struct outputs *o, unsigned output, int of)
{
	uint64_t before = 0, last = (uint64_t)output * (unsigned)job.ranks + (unsigned)of;

	if (!o->irregular)
		return (MPI_Offset)(last * o->side * o->side * sizeof(double));
	for (uint64_t i = 0; i < last; i++)
		before += doubles_of(o, (unsigned)(i / (unsigned)job.ranks),
				     (int)(i % (unsigned)job.ranks));
	return (MPI_Offset)(before * sizeof(double));
}

/* ---- Objects ---- */

static umobject_container *container;

static void check_object(int result, const char *what)
{
	if (result < 0)
		die("%s: %s", what, umobject_errormsg());
}

static void objects_begin(const struct outputs *o)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;

	attr.flags = UMOBJECT_CREATE;
	check_object(umobject_open(o->path, &attr, &container), o->path);
}

/* A name for each output, as each has a place of its own in a file. */
static const char *name_of(unsigned output)
{
	static char name[32];

	snprintf(name, sizeof(name), "output.%u", output);
	return name;
}

static void objects_write(const struct outputs *o, unsigned output, const double *chunk)
{
	struct umobject_shape shape = { .type = UMOBJECT_DOUBLE,
					.rank = 2,
					.dims = { (uint64_t)job.ranks * o->side, o->side },
					.chunk = { o->side, o->side } };
	uint64_t start[] = { (uint64_t)job.rank * o->side, 0 }, count[] = { o->side, o->side };

	check_object(umobject_put_all(MPI_COMM_WORLD, container, name_of(output), &shape, start,
				      count, chunk),
		     "put");
}

static void objects_read(const struct outputs *o, unsigned output, int of, double *chunk)
{
	uint64_t start[] = { (uint64_t)of * o->side, 0 }, count[] = { o->side, o->side };

	check_object(umobject_get_all(MPI_COMM_WORLD, container, name_of(output), 0, start, count,
				      chunk),
		     "get");
}

static void objects_end(void)
{
	umobject_close(container);
}

static const struct output_method objects = { "objects", objects_begin, objects_write, objects_read,
					      objects_end, NULL };

/* ---- MPI-IO ---- */

static MPI_File file;

static void mpiio_begin(const struct outputs *o)
{
	job_check(MPI_File_open(MPI_COMM_WORLD, o->path, MPI_MODE_CREATE | MPI_MODE_RDWR,
				MPI_INFO_NULL, &file),
		  "MPI_File_open");
}

static void mpiio_write(const struct outputs *o, unsigned output, const double *chunk)
{
	job_check(MPI_File_write_at(file, place_of(o, output, job.rank), chunk,
				    (int)doubles_of(o, output, job.rank), MPI_DOUBLE,
				    MPI_STATUS_IGNORE),
		  "MPI_File_write_at");
	job_check(MPI_File_sync(file), "MPI_File_sync");
}

static void mpiio_read(const struct outputs *o, unsigned output, int of, double *chunk)
{
	job_check(MPI_File_read_at(file, place_of(o, output, of), chunk,
				   (int)doubles_of(o, output, of), MPI_DOUBLE, MPI_STATUS_IGNORE),
		  "MPI_File_read_at");
}

static void mpiio_end(void)
{
	job_check(MPI_File_close(&file), "MPI_File_close");
}

static void mpiio_write_all(const struct outputs *o, unsigned output, const double *chunk)
{
	job_check(MPI_File_write_at_all(file, place_of(o, output, job.rank), chunk,
					(int)doubles_of(o, output, job.rank), MPI_DOUBLE,
					MPI_STATUS_IGNORE),
		  "MPI_File_write_at_all");
	job_check(MPI_File_sync(file), "MPI_File_sync");
}

/* The ranks write in any order, so the file cannot be checked. */
static void mpiio_write_shared(const struct outputs *o, unsigned output, const double *chunk)
{
	job_check(MPI_File_write_shared(file, chunk, (int)doubles_of(o, output, job.rank),
					MPI_DOUBLE, MPI_STATUS_IGNORE),
		  "MPI_File_write_shared");
	job_check(MPI_File_sync(file), "MPI_File_sync");
}

static MPI_Request request = MPI_REQUEST_NULL;
static double *in_flight;    /* copy of the chunk that is being written */

static void mpiio_finish(void)
{
	if (request == MPI_REQUEST_NULL)
		return;
	job_check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
	job_check(MPI_File_sync(file), "MPI_File_sync");
}

static void mpiio_write_async(const struct outputs *o, unsigned output, const double *chunk)
{
	size_t doubles = doubles_of(o, output, job.rank);

	mpiio_finish();
	in_flight = in_flight ? in_flight : (double *)huge_memory(max_chunk_bytes(o));
	memcpy(in_flight, chunk, doubles * sizeof(double));
	job_check(MPI_File_iwrite_at_all(file, place_of(o, output, job.rank), in_flight,
					 (int)doubles, MPI_DOUBLE, &request),
		  "MPI_File_iwrite_at_all");
}

static const struct output_method mpiio = { "mpiio", mpiio_begin, mpiio_write, mpiio_read,
					    mpiio_end, NULL };
static const struct output_method mpiio_all = { "mpiio-all", mpiio_begin, mpiio_write_all,
						mpiio_read, mpiio_end, NULL };
static const struct output_method mpiio_async = { "mpiio-async", mpiio_begin, mpiio_write_async,
						  mpiio_read, mpiio_end, mpiio_finish };
static const struct output_method mpiio_shared = { "mpiio-shared", mpiio_begin, mpiio_write_shared,
						   NULL, mpiio_end, NULL };

/* ---- Commits ---- */

static const char *driver = "posix:";
static char *mapped;         /* mapping of all outputs of this rank, which follow each other */
static struct umsync_handle *commit;

/* Bytes between two chunks of a rank. The offset of a mapping is a multiple of the page size. */
static size_t chunk_step(const struct outputs *o)
{
	return (max_chunk_bytes(o) + 4095) / 4096 * 4096;
}

static off_t commit_place(const struct outputs *o, unsigned output, int of)
{
	return (off_t)(((size_t)of * o->count + output) * chunk_step(o));
}

static void check_mapping(int result, const char *what)
{
	if (result < 0)
		die("%s: %s", what, umerrormsg());
}

static void commit_begin(const struct outputs *o)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[4096];
	void *addr;

	attr.flags = UMMAP_CREATE;
	snprintf(uri, sizeof(uri), "%s%s", driver, o->path);
	check_mapping(ummap_open(uri, o->count * chunk_step(o), commit_place(o, 0, job.rank),
				 PROT_READ | PROT_WRITE, &attr, &addr), uri);
	mapped = addr;
}

static void commit_finish(void)
{
	if (commit)
		check_mapping(umsync_wait(&commit), "umsync_wait");
}

static void commit_write(const struct outputs *o, unsigned output, const double *chunk)
{
	commit_finish();
	memcpy(mapped + output * chunk_step(o), chunk,
	       doubles_of(o, output, job.rank) * sizeof(double));
	check_mapping(umsync_begin(mapped, 0, &commit), "umsync_begin");
}

static void commit_read(const struct outputs *o, unsigned output, int of, double *chunk)
{
	size_t bytes = doubles_of(o, output, of) * sizeof(double);
	int fd = open(o->path, O_RDONLY);

	if (pread(fd, chunk, bytes, commit_place(o, output, of)) != (ssize_t)bytes)
		die("%s: cannot read", o->path);
	close(fd);
}

static void commit_end(void)
{
	check_mapping(umunmap(mapped, 0), "umunmap");
}

static const struct output_method commits = { "commit", commit_begin, commit_write, commit_read,
					      commit_end, commit_finish };

/* ---- No output, for comparison ---- */

static void none_begin(const struct outputs *o)
{
	(void)o;
}

static void none_write(const struct outputs *o, unsigned output, const double *chunk)
{
	(void)o, (void)output, (void)chunk;
}

static void none_end(void)
{
}

static const struct output_method none_at_all = { "none", none_begin, none_write, NULL, none_end,
						  NULL };

/* ---- The application ---- */

static const struct output_method *method_of(const char *name)
{
	const struct output_method *const own[] = { &objects, &mpiio, &mpiio_all, &mpiio_async,
						     &mpiio_shared, &commits, &none_at_all };

	for (unsigned i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (strcmp(own[i]->name, name) == 0)
			return own[i];
	for (const struct output_method *const *m = outputs_hdf5; *m; m++)
		if (strcmp((*m)->name, name) == 0)
			return *m;
	die(strncmp(name, "hdf5", 4) == 0 && !*outputs_hdf5 ?
		    "-m %s: outputs was built without parallel HDF5" :
		    "-m %s: there is no such method; see --help",
	    name);
}

static void fill_chunk(const struct outputs *o, unsigned output, int of, double *chunk)
{
	fill_words(chunk, doubles_of(o, output, of) * sizeof(double),
		   (uint64_t)place_of(o, output, of), FILE_SALT);
}

/* Each rank looks at what its neighbour has written. */
static void check_outputs(const struct options *o, double *chunk, double *want)
{
	const struct outputs *out = &o->outputs;
	int of = (job.rank + 1) % job.ranks;

	for (unsigned output = 0; o->method->read && output < out->count; output++) {
		o->method->read(out, output, of, chunk);
		fill_chunk(out, output, of, want);
		if (memcmp(chunk, want, doubles_of(out, output, of) * sizeof(double)) != 0)
			die("output %u of rank %d is another one than was written", output, of);
	}
}

static double run_steps(const struct options *o, double *chunk, double *output_s)
{
	uint64_t start = job_start(), begun;

	o->method->begin(&o->outputs);
	for (unsigned cycle = 1; cycle <= o->cycles; cycle++) {
		if (o->computing)
			spend_ns(o->computing * 1000ull);
		if (cycle % EACH)
			continue;
		fill_chunk(&o->outputs, cycle / EACH - 1, job.rank, chunk);
		begun = job_start();
		o->method->write(&o->outputs, cycle / EACH - 1, chunk);
		*output_s += job_seconds(begun);
	}
	if (o->method->finish)
		o->method->finish();
	return job_seconds(start);
}

static void print_results(const struct options *o, double seconds, double output_s)
{
	const struct outputs *out = &o->outputs;
	double mib = (double)place_of(out, out->count, 0) / (double)MIB;
	struct report r;

	if (job.rank)
		return;
	printf("%s, %d ranks, %u outputs, %.1f MiB: %.3f s, of which %.3f s for output, %.1f "
	       "MiB/s\n%s\n",
	       o->method->name, job.ranks, out->count, mib, seconds, output_s, mib / output_s,
	       o->method->read ? "all outputs are right" : "the outputs were not checked");
	r = report_begin(o->json, "outputs");
	report_text(&r, "method", o->method->name);
	report_number(&r, "tasks", job.ranks);
	report_number(&r, "side", (double)out->side);
	report_number(&r, "seconds", seconds);
	report_number(&r, "output_s", output_s);
	report_number(&r, "mib_s", mib / output_s);
	report_end(&r);
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "side", 1, 0, 's' }, { "cycles", 1, 0, 'n' }, { "computing", 1, 0, 'c' },
		{ "irregular", 0, 0, 'i' }, { "driver", 1, 0, 'd' },
		{ "json", 1, 0, 'j' }, { "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "m:o:h", known, NULL)) != -1) {
		switch (c) {
		case 'm': o->method = method_of(optarg); break;
		case 'o': o->outputs.path = optarg; break;
		case 's': o->outputs.side = parse_count("side", optarg, 8192); break;
		case 'n': o->cycles = parse_count("cycles", optarg, 1000000); break;
		case 'c': o->computing = parse_count("computing", optarg, 1000000000); break;
		case 'i': o->outputs.irregular = 1; break;
		case 'd': driver = optarg; break;
		case 'j': o->json = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (o->outputs.side % 8)
		die("--side is in steps of 8");
	if (o->outputs.irregular && (o->method == &objects || !strncmp(o->method->name, "hdf5", 4)))
		die("--irregular: -m %s has chunks of one size", o->method->name);
	o->outputs.count = o->cycles / EACH;
	if (!o->outputs.count)
		die("--cycles: each %dth ends with an output, so that there would be none", EACH);
}

int main(int argc, char **argv)
{
	struct options o = { .outputs = { .path = "outputs", .side = 512 },
			     .method = &objects,
			     .cycles = 200 };
	const struct alloc none = { 0 };
	double *chunk, *want, seconds, output_s = 0;
	size_t bytes;

	parse_options(&o, argc, argv);
	bytes = max_chunk_bytes(&o.outputs);
	job_begin(&none);
	chunk = (double *)huge_memory(bytes);
	want = (double *)huge_memory(bytes);
	/* The page cache gets that memory. */
	job_warm(&none, (o.outputs.count + 1) * bytes);
	seconds = run_steps(&o, chunk, &output_s);
	check_outputs(&o, chunk, want);
	o.method->end();
	MPI_Barrier(MPI_COMM_WORLD);
	if (job.rank == 0 && access(o.outputs.path, F_OK) == 0)
		remove_all(o.outputs.path);
	print_results(&o, seconds, output_s);
	job_end();
	return 0;
}
