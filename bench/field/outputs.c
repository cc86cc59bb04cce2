/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * outputs - the skeleton application of Chien et al. (2018) with MPI. It computes in cycles, and
 * all ranks write an output after every fifth cycle: as objects, by parallel HDF5 to one shared
 * file, or by MPI-IO alone.
 */
#include <getopt.h>

#include "kit/data.h"
#include "job.h"
#include "outputs.h"
#include "report.h"
#include "ummap-object-mpi.h"

static const char help[] =
"usage: mpirun outputs [OPTION ...]\n"
"Cycles of computation, of which each fifth ends with a durable output.\n"
"  -m METHOD        objects, mpiio, hdf5 or hdf5-collective (objects)\n"
"  -o PATH          container, or file; removed behind (outputs)\n"
"  --side N         doubles of a side of a rank's chunk, in steps of 8 (512)\n"
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
					      objects_end };

/* ---- MPI-IO ---- */

static MPI_File file;

static void mpiio_begin(const struct outputs *o)
{
	job_check(MPI_File_open(MPI_COMM_WORLD, o->path, MPI_MODE_CREATE | MPI_MODE_RDWR,
				MPI_INFO_NULL, &file),
		  "MPI_File_open");
}

/* Also what the words of the chunk depend on. */
static MPI_Offset place_of(const struct outputs *o, unsigned output, int of)
{
	return (MPI_Offset)(((uint64_t)output * (unsigned)job.ranks + (unsigned)of) * o->side *
			    o->side * sizeof(double));
}

static void mpiio_write(const struct outputs *o, unsigned output, const double *chunk)
{
	job_check(MPI_File_write_at(file, place_of(o, output, job.rank), chunk,
				    (int)(o->side * o->side), MPI_DOUBLE, MPI_STATUS_IGNORE),
		  "MPI_File_write_at");
	job_check(MPI_File_sync(file), "MPI_File_sync");
}

static void mpiio_read(const struct outputs *o, unsigned output, int of, double *chunk)
{
	job_check(MPI_File_read_at(file, place_of(o, output, of), chunk, (int)(o->side * o->side),
				   MPI_DOUBLE, MPI_STATUS_IGNORE),
		  "MPI_File_read_at");
}

static void mpiio_end(void)
{
	job_check(MPI_File_close(&file), "MPI_File_close");
}

static const struct output_method mpiio = { "mpiio", mpiio_begin, mpiio_write, mpiio_read,
					    mpiio_end };

/* ---- The application ---- */

static const struct output_method *method_of(const char *name)
{
	const struct output_method *const own[] = { &objects, &mpiio };

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
	fill_words(chunk, o->side * o->side * sizeof(double), (uint64_t)place_of(o, output, of),
		   FILE_SALT);
}

/* Each rank looks at what its neighbour has written. */
static void check_outputs(const struct options *o, double *chunk, double *want)
{
	const struct outputs *out = &o->outputs;
	int of = (job.rank + 1) % job.ranks;

	for (unsigned output = 0; output < out->count; output++) {
		o->method->read(out, output, of, chunk);
		fill_chunk(out, output, of, want);
		if (memcmp(chunk, want, out->side * out->side * sizeof(double)) != 0)
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
	return job_seconds(start);
}

static void print_results(const struct options *o, double seconds, double output_s)
{
	const struct outputs *out = &o->outputs;
	double mib = (double)out->count * job.ranks *
		     (double)(out->side * out->side * sizeof(double)) / (double)MIB;
	struct report r;

	if (job.rank)
		return;
	printf("%s, %d ranks, %u outputs, %.1f MiB: %.3f s, of which %.3f s for output, %.1f "
	       "MiB/s\nall outputs are right\n",
	       o->method->name, job.ranks, out->count, mib, seconds, output_s, mib / output_s);
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
		case 'j': o->json = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (o->outputs.side % 8)
		die("--side is in steps of 8");
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
	bytes = o.outputs.side * o.outputs.side * sizeof(double);
	job_begin(&none);
	chunk = (double *)huge_memory(bytes);
	want = (double *)huge_memory(bytes);
	/* The page cache gets that memory. */
	job_warm(&none, (o.outputs.count + 1) * bytes);
	seconds = run_steps(&o, chunk, &output_s);
	check_outputs(&o, chunk, want);
	o.method->end();
	MPI_Barrier(MPI_COMM_WORLD);
	if (job.rank == 0)
		remove_all(o.outputs.path);
	print_results(&o, seconds, output_s);
	job_end();
	return 0;
}
