/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * haccio - checkpoint and restart of the particles of HACC. A particle has nine variables with 38
 * bytes. A rank writes and reads each variable as one piece, behind a header of 24 MiB. The parts
 * of the ranks follow each other in a shared file; with -F, each rank has a file. A checkpoint ends
 * when it is durable. A restart reads it into new memory, and compares all particles.
 */
#include <getopt.h>
#include <math.h>

#include "kit/data.h"
#include "api.h"
#include "job.h"
#include "report.h"

enum { VARIABLES = 9, PARTICLE = 38, HEADER = 24 << 20, PIECE = 256 << 20 };

struct variable {
	const char *name;
	size_t size;
};

static const struct variable variables[VARIABLES] = {
	{ "xx", 4 }, { "yy", 4 }, { "zz", 4 }, { "vx", 4 }, { "vy", 4 }, { "vz", 4 }, { "phi", 4 },
	{ "pid", 8 },
	{ "mask", 2 },
};

struct options {
	struct access io;
	const char *file, *json;
	uint64_t particles;               /* of this rank */
	uint64_t first;                   /* of them, among all */
	uint64_t total;
	bool write, read, keep, cold;
};

static const char help[] =
"usage: mpirun haccio [OPTION ...]\n"
"Checkpoint and restart of particles, as HACC-IO does.\n"
"  -a API           " API_NAMES " (POSIX)\n"
"  -n N             particles of all ranks together (1000000)\n"
"  -o FILE          (haccio)\n"
"  -F               a file for each rank\n"
"  -w -r            checkpoint; restart (both)\n"
"  -k               keep the files\n"
"  --cold           the page cache has nothing of the files when the restart begins\n"
"  --json FILE      add a line to FILE\n"
ALLOC_KNOBS_HELP
"  --help\n";

/* ---- Particles ---- */

/* Every bit of the result depends on every one of x. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 27) * 0x94D049BB133111EBull;
	return x ^ x >> 31;
}

/* Returns the value that variable v of a particle must have. */
static void value_of(unsigned v, uint64_t particle, void *value)
{
	uint64_t bits = mix(particle * VARIABLES + v + 1);
	uint16_t mask = (uint16_t)bits;
	float coordinate = (float)(bits >> 40) / 65536.0f;

	if (variables[v].size == sizeof(float))
		memcpy(value, &coordinate, sizeof(coordinate));
	else if (variables[v].size == sizeof(particle))
		memcpy(value, &particle, sizeof(particle));
	else
		memcpy(value, &mask, sizeof(mask));
}

static void make_particles(const struct options *o, char **data)
{
	for (unsigned v = 0; v < VARIABLES; v++)
		for (uint64_t i = 0; i < o->particles; i++)
			value_of(v, o->first + i, data[v] + i * variables[v].size);
}

static void check_particles(const struct options *o, char **data)
{
	char want[8];

	for (unsigned v = 0; v < VARIABLES; v++)
		for (uint64_t i = 0; i < o->particles; i++) {
			value_of(v, o->first + i, want);
			if (memcmp(data[v] + i * variables[v].size, want, variables[v].size))
				die("%s of particle %llu is wrong", variables[v].name,
				    (unsigned long long)(o->first + i));
		}
}

/* ---- Files ---- */

static const char *file_of(const struct options *o)
{
	return o->io.per_process ? job_path(o->file, job.rank) : o->file;
}

static bool is_file_owner(const struct options *o)
{
	return o->io.api->filed && (o->io.per_process || !job.rank);
}

static uint64_t part_offset(const struct options *o)
{
	return HEADER + (o->io.per_process ? 0 : o->first * PARTICLE);
}

static void transfer_array(const struct options *o, struct file *f, char *data, size_t len,
			   uint64_t off, bool write)
{
	size_t piece;

	for (; len; len -= piece, data += piece, off += piece) {
		piece = len < PIECE ? len : PIECE;
		if (write)
			o->io.api->write(f, data, piece, off);
		else
			o->io.api->read(f, data, piece, off);
	}
}

static void transfer_arrays(const struct options *o, struct file *f, char **data, bool write)
{
	uint64_t off = part_offset(o);

	for (unsigned v = 0; v < VARIABLES; v++) {
		size_t len = o->particles * variables[v].size;

		transfer_array(o, f, data[v], len, off, write);
		off += len;
	}
}

static double checkpoint(const struct options *o, char **data)
{
	struct file f = { .fd = -1 };
	uint64_t start;

	job_warm(&o->io.alloc, o->particles * PARTICLE);
	start = job_start();
	if (is_file_owner(o))
		access_create(&o->io, file_of(o));
	MPI_Barrier(MPI_COMM_WORLD);
	o->io.api->open(&f, &o->io, file_of(o), true);
	if (is_file_owner(o))
		o->io.api->write(&f, &o->total, sizeof(o->total), 0);
	transfer_arrays(o, &f, data, true);
	o->io.api->sync(&f);
	o->io.api->close(&f);
	return job_seconds(start);
}

static double restart(const struct options *o, char **data)
{
	struct file f = { .fd = -1 };
	uint64_t start, total = o->total;

	job_warm(&o->io.alloc, o->particles * PARTICLE);
	start = job_start();
	o->io.api->open(&f, &o->io, file_of(o), false);
	if (is_file_owner(o))
		o->io.api->read(&f, &total, sizeof(total), 0);
	if (total != o->total)
		die("%s is a checkpoint of %llu particles: wanted %llu", file_of(o),
		    (unsigned long long)total, (unsigned long long)o->total);
	transfer_arrays(o, &f, data, false);
	o->io.api->close(&f);
	return job_seconds(start);
}

/* ---- Running ---- */

static void print_results(const struct options *o, double written_s, double read_s)
{
	double mib = (double)(o->total * PARTICLE) / (double)MIB;
	struct report r;

	if (job.rank)
		return;
	printf("%s, %d ranks, %llu particles, %.1f MiB\n", o->io.api->name, job.ranks,
	       (unsigned long long)o->total, mib);
	if (o->write)
		printf("checkpoint %10.3f s %10.1f MiB/s\n", written_s, mib / written_s);
	if (o->read)
		printf("restart    %10.3f s %10.1f MiB/s\nall particles are right\n", read_s,
		       mib / read_s);
	r = report_begin(o->json, "haccio");
	report_text(&r, "api", o->io.api->name);
	report_number(&r, "tasks", job.ranks);
	report_number(&r, "particles", (double)o->total);
	report_number(&r, "file_per_process", o->io.per_process);
	report_number(&r, "cold", o->cold);
	report_number(&r, "seg", (double)o->io.alloc.seg);
	report_number(&r, "budget", (double)o->io.alloc.budget);
	if (o->write)
		report_number(&r, "checkpoint_s", written_s);
	if (o->read)
		report_number(&r, "restart_s", read_s);
	report_end(&r);
}

static void allocate(const struct options *o, char **data)
{
	for (unsigned v = 0; v < VARIABLES; v++)
		data[v] = huge_memory((o->particles + 1) * variables[v].size);
	if (o->io.api->paged)
		job_limit(&o->io.alloc);
}

static double restart_and_check(const struct options *o, char **data)
{
	double seconds;

	for (unsigned v = 0; v < VARIABLES; v++)
		memset(data[v], 0, o->particles * variables[v].size);
	if (o->cold && is_file_owner(o))
		access_cool(&o->io, file_of(o));
	seconds = restart(o, data);
	check_particles(o, data);
	return seconds;
}

static void run_phases(const struct options *o)
{
	char *data[VARIABLES];
	double written_s = 0, read_s = 0;

	allocate(o, data);
	if (o->write) {
		make_particles(o, data);
		written_s = checkpoint(o, data);
	}
	if (o->read)
		read_s = restart_and_check(o, data);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!o->keep && is_file_owner(o) && unlink(file_of(o)))
		fprintf(stderr, "haccio: %s: %s\n", file_of(o), strerror(errno));
	print_results(o, written_s, read_s);
}

static void distribute_particles(struct options *o)
{
	uint64_t ranks = (uint64_t)job.ranks, rank = (uint64_t)job.rank, rest = o->total % ranks;

	o->particles = o->total / ranks + (rank < rest);
	o->first = o->total / ranks * rank + (rank < rest ? rank : rest);
	o->io.file_size = HEADER + (o->io.per_process ? o->particles : o->total) * PARTICLE;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		ALLOC_KNOBS, { "cold", 0, 0, 'c' }, { "json", 1, 0, 'j' }, { "help", 0, 0, 'h' },
		{ 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "a:n:o:Fwrkh", known, NULL)) != -1) {
		switch (c) {
		case 'a': access_choose(&o->io, optarg); break;
		case 'n': o->total = parse_count("n", optarg, UINT32_MAX); break;
		case 'o': o->file = optarg; break;
		case 'F': o->io.per_process = true; break;
		case 'w': o->write = true; break;
		case 'r': o->read = true; break;
		case 'k': o->keep = true; break;
		case 'c': o->cold = true; break;
		case 'j': o->json = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		default:
			if (!alloc_option(&o->io.alloc, c, optarg))
				die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (!o->write && !o->read)
		o->write = o->read = true;
	if (access_is(&o->io, "memory") && !o->write)
		die("-a MEMORY: has no checkpoint but its own; it needs -w");
	if (!o->io.per_process && (access_is(&o->io, "ummap") || access_is(&o->io, "memory")))
		die("-a %s: needs -F: parts of particles do not end where segments do",
		    o->io.api->name);
}

int main(int argc, char **argv)
{
	struct options o = { .file = "haccio", .total = 1000000 };

	access_choose(&o.io, "POSIX");
	parse_options(&o, argc, argv);
	job_begin(&o.io.alloc);
	distribute_particles(&o);
	run_phases(&o);
	job_end();
	return 0;
}
