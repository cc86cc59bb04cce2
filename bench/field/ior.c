/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ior - the tests of IOR, with the same letters. Ranks write and read blocks of a shared file, or
 * of a file for each rank (-F), in transfers: in order, strided (-b as -t, many -s) or at random. A
 * file has SEGMENTS parts, each with a block of every rank. Times are those of open, transfers and
 * close at the slowest rank; the bandwidth is all bytes divided by this time.
 */
#include "api.h"

#include <getopt.h>
#include <math.h>

#include "kit/data.h"
#include "job.h"
#include "report.h"

#define STAMP_EVERY (4 * KIB)

/* The command line; IOR's letters. */
struct ior {
	struct access io;                 /* -a -z -F */
	const char *file;                 /* -o */
	const char *json;
	size_t block, transfer;           /* -b -t */
	unsigned segments, reps;          /* -s -i */
	unsigned deadline;                /* -D, seconds; 0: none */
	bool reorder, fsync;              /* -C -e */
	bool write, read;                 /* -w -r */
	bool check_write, check_read;     /* -W -R */
	bool keep, cold;                  /* -k */
	size_t ahead;                     /* transfers */
	size_t spread;                    /* bytes that are read into in turn */
	char *buf, *pattern;              /* that many, and a transfer */
};

enum phase { PHASE_WRITE, PHASE_READ, PHASES };

static const char *const phase_names[] = { "write", "read" };

/* The result of a phase, the same at all ranks. */
struct result {
	double open_s, xfer_s, close_s, total_s;
	uint64_t bytes, transfers;
};

struct results {
	struct result *of[PHASES];        /* one for each repetition */
	unsigned n;
};

static const char help[] =
"usage: mpirun ior [OPTION ...]\n"
"Writes and reads a file by all ranks, as IOR does. Without -w, -r, -W and -R: both.\n"
"  -a API           POSIX, MPIIO, UMMAP, MMAP, or MEMORY: memory of each rank without a file,\n"
"                   only with -F (POSIX)\n"
"  -b SIZE          block: what a rank has in one segment of the file (1m)\n"
"  -t SIZE          transfer (256k)\n"
"  -s N             segments of the file (1)\n"
"  -i N             repetitions (1)\n"
"  -o FILE          (testFile)\n"
"  -z               random transfers: each transfer once, at a random rank, or with -F at the\n"
"                   rank of the file\n"
"  -F               a file for each rank\n"
"  -C               ranks read, and check, what the next one wrote\n"
"  -e               writing ends when all is durable\n"
"  -w -r            write; read\n"
"  -W -R            read back after writing, and compare; compare while reading, inside the time\n"
"  -k               keep the files\n"
"  -D SECONDS       each phase ends after that time, with what was moved until then\n"
"  --cold           the page cache has nothing of the files when reading begins\n"
"  --odirect        POSIX with O_DIRECT\n"
"  --spread SIZE    read into buffers of this total size in turn, not into one buffer (-t)\n"
"  --ahead N        tell UMMAP and MMAP of each transfer N transfers before it is read\n"
"  --json FILE      add a line for each phase to FILE\n"
ALLOC_KNOBS_HELP ALLOC_ADVICE_HELP
"                   where nothing else is said, --seg is the transfer\n"
"  --help\n";

/* ---- What is written ---- */

/* The same words everywhere, but the first one of each page: that says where it belongs. */
static void fill_transfer(char *pattern, size_t len, uint64_t off, int owner)
{
	for (size_t i = 0; i < len; i += STAMP_EVERY)
		*(uint64_t *)(pattern + i) = FILE_SALT ^ (off + i) ^ (uint64_t)owner << 48;
}

static void make_buffers(struct ior *t)
{
	t->buf = huge_memory(t->spread);
	t->pattern = huge_memory(t->transfer);
	fill_words(t->pattern, t->transfer, 0, FILE_SALT);
}

/* ---- Who moves what ---- */

static size_t count_transfers(const struct ior *t)
{
	return t->block / t->transfer * t->segments;
}

static uint64_t place(const struct ior *t, int rank, size_t i)
{
	size_t per_block = t->block / t->transfer, segment = i / per_block;

	if (!t->io.per_process)
		segment = segment * (size_t)job.ranks + (size_t)rank;
	return segment * t->block + i % per_block * t->transfer;
}

/* Offsets for `rank`, in its order. At random all ranks shuffle alike, and each takes its part. */
static uint64_t *plan(const struct ior *t, int rank, uint64_t seed)
{
	size_t n = count_transfers(t), all = t->io.file_size / t->transfer, first, i;
	uint64_t *offsets = calloc(n, sizeof(*offsets));
	uint32_t *order;

	if (!t->io.random) {
		for (i = 0; i < n; i++)
			offsets[i] = place(t, rank, i);
		return offsets;
	}
	order = calloc(all, sizeof(*order));
	for (i = 0; i < all; i++)
		order[i] = (uint32_t)i;
	shuffle(order, all, seed + (t->io.per_process ? (uint64_t)rank : 0));
	first = t->io.per_process ? 0 : (size_t)rank * n;
	for (i = 0; i < n; i++)
		offsets[i] = order[first + i] * t->transfer;
	free(order);
	return offsets;
}

static const char *file_of(const struct ior *t, int rank)
{
	return t->io.per_process ? job_path(t->file, rank) : t->file;
}

/* The one who makes, cools and removes a file. */
static bool is_file_owner(const struct ior *t)
{
	return t->io.api->filed && (t->io.per_process || !job.rank);
}

static void create_files(const struct ior *t)
{
	if (is_file_owner(t))
		access_create(&t->io, file_of(t, job.rank));
	MPI_Barrier(MPI_COMM_WORLD);
}

static void cool_files(const struct ior *t)
{
	if (t->cold && is_file_owner(t))
		access_cool(&t->io, file_of(t, job.rank));
	MPI_Barrier(MPI_COMM_WORLD);
}

static void remove_files(const struct ior *t)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (!t->keep && is_file_owner(t) && unlink(file_of(t, job.rank)))
		fprintf(stderr, "ior: %s: %s\n", file_of(t, job.rank), strerror(errno));
}

/* ---- Phases ---- */

/* How many transfers were done before the deadline. */
static size_t write_all(const struct ior *t, struct file *f, const uint64_t *offsets, size_t n,
			uint64_t end)
{
	size_t i;

	for (i = 0; i < n && (!end || now_ns() < end); i++) {
		fill_transfer(t->pattern, t->transfer, offsets[i],
			      t->io.per_process ? job.rank : 0);
		t->io.api->write(f, t->pattern, t->transfer, offsets[i]);
	}
	if (t->fsync)
		t->io.api->sync(f);
	return i;
}

static size_t read_all(const struct ior *t, struct file *f, const uint64_t *offsets, size_t n,
		       uint64_t end, int owner, bool check)
{
	size_t buffers = t->spread / t->transfer, i;

	for (i = 0; i < n && (!end || now_ns() < end); i++) {
		char *buf = t->buf + i % buffers * t->transfer;

		if (t->ahead && t->ahead < n - i)
			t->io.api->expect(f, t->transfer, offsets[i + t->ahead]);
		t->io.api->read(f, buf, t->transfer, offsets[i]);
		if (!check)
			continue;
		fill_transfer(t->pattern, t->transfer, offsets[i], t->io.per_process ? owner : 0);
		if (memcmp(buf, t->pattern, t->transfer))
			die("%s: wrong data in the transfer at %llu", file_of(t, owner),
			    (unsigned long long)offsets[i]);
	}
	return i;
}

/* 0: none. */
static uint64_t ends_at(unsigned seconds)
{
	return seconds ? now_ns() + seconds * 1000000000ull : 0;
}

static struct result write_phase(const struct ior *t, uint64_t seed, size_t *written)
{
	uint64_t *offsets = plan(t, job.rank, seed), start, at;
	struct file f = { .fd = -1 };
	struct result r;

	job_warm(&t->io.alloc, t->block * t->segments);
	start = job_start();
	create_files(t);
	t->io.api->open(&f, &t->io, file_of(t, job.rank), true);
	r.open_s = job_seconds(start);
	at = job_start();
	*written = write_all(t, &f, offsets, count_transfers(t), ends_at(t->deadline));
	r.xfer_s = job_seconds(at);
	at = job_start();
	t->io.api->close(&f);
	r.close_s = job_seconds(at);
	r.total_s = job_seconds(start);
	r.transfers = job_total(*written);
	r.bytes = r.transfers * t->transfer;
	free(offsets);
	return r;
}

/* Reads the first n transfers of the owner. */
static struct result read_phase(const struct ior *t, uint64_t seed, int owner, size_t n, bool check,
				unsigned seconds)
{
	uint64_t *offsets = plan(t, owner, seed), start, at;
	struct file f = { .fd = -1 };
	struct result r;

	job_warm(&t->io.alloc, t->block * t->segments);
	start = job_start();
	t->io.api->open(&f, &t->io, file_of(t, owner), false);
	r.open_s = job_seconds(start);
	at = job_start();
	n = read_all(t, &f, offsets, n, ends_at(seconds), owner, check);
	r.xfer_s = job_seconds(at);
	at = job_start();
	t->io.api->close(&f);
	r.close_s = job_seconds(at);
	r.total_s = job_seconds(start);
	r.transfers = job_total(n);
	r.bytes = r.transfers * t->transfer;
	free(offsets);
	return r;
}

/* ---- Output ---- */

static double mib_s(const struct result *r)
{
	return (double)r->bytes / (double)MIB / r->total_s;
}

static double ops_s(const struct result *r)
{
	return (double)r->transfers / r->xfer_s;
}

static void print_head(const struct ior *t)
{
	if (job.rank)
		return;
	printf("api                 : %s\n", t->io.api->name);
	printf("test filename       : %s\n", t->file);
	printf("access              : %s\n",
	       t->io.per_process ? "file-per-process" : "single-shared-file");
	printf("ordering in a file  : %s\n", t->io.random            ? "random" :
					     t->block == t->transfer ? "strided" :
								       "sequential");
	printf("ordering inter file : %s\n",
	       t->reorder ? "constant task offset, 1" : "no tasks offsets");
	printf("tasks               : %d\n", job.ranks);
	printf("repetitions         : %u\n", t->reps);
	printf("xfersize            : %zu bytes\n", t->transfer);
	printf("blocksize           : %zu bytes\n", t->block);
	printf("aggregate filesize  : %.2f MiB\n\n",
	       (double)t->io.file_size * (t->io.per_process ? job.ranks : 1) / (double)MIB);
	printf("%-6s %10s %10s %10s %11s %10s %9s %9s %9s %9s %5s\n", "access", "bw(MiB/s)", "IOPS",
	       "Latency(s)", "block(KiB)", "xfer(KiB)", "open(s)", "wr/rd(s)", "close(s)",
	       "total(s)", "iter");
}

static void print_result(const struct ior *t, enum phase phase, const struct result *r,
			 unsigned rep)
{
	if (job.rank)
		return;
	printf("%-6s %10.2f %10.2f %10.6f %11.2f %10.2f %9.6f %9.6f %9.6f %9.6f %5u\n",
	       phase_names[phase], mib_s(r), ops_s(r), (double)job.ranks / ops_s(r),
	       (double)t->block / 1024, (double)t->transfer / 1024, r->open_s, r->xfer_s,
	       r->close_s, r->total_s, rep);
	fflush(stdout);
}

struct summary {
	double max, min, mean, deviation, seconds;
};

static struct summary add_results(const struct result *r, unsigned n)
{
	struct summary s = { .min = mib_s(r) };
	unsigned i;

	for (i = 0; i < n; i++) {
		s.max = fmax(s.max, mib_s(&r[i]));
		s.min = fmin(s.min, mib_s(&r[i]));
		s.mean += mib_s(&r[i]) / n;
		s.seconds += r[i].total_s / n;
	}
	for (i = 0; i < n; i++)
		s.deviation += (mib_s(&r[i]) - s.mean) * (mib_s(&r[i]) - s.mean) / n;
	s.deviation = sqrt(s.deviation);
	return s;
}

static void report_result(const struct ior *t, enum phase phase, const struct summary *s)
{
	struct report r = report_begin(t->json, "ior");

	report_text(&r, "api", t->io.api->name);
	report_text(&r, "phase", phase_names[phase]);
	report_number(&r, "tasks", job.ranks);
	report_number(&r, "block", (double)t->block);
	report_number(&r, "transfer", (double)t->transfer);
	report_number(&r, "segments", t->segments);
	report_number(&r, "random", t->io.random);
	report_number(&r, "file_per_process", t->io.per_process);
	report_number(&r, "fsync", t->fsync);
	report_number(&r, "odirect", t->io.direct);
	report_number(&r, "cold", t->cold);
	report_number(&r, "seg", (double)t->io.alloc.seg);
	report_number(&r, "budget", (double)t->io.alloc.budget);
	report_number(&r, "repetitions", t->reps);
	report_number(&r, "max_mib_s", s->max);
	report_number(&r, "min_mib_s", s->min);
	report_number(&r, "mean_mib_s", s->mean);
	report_number(&r, "stddev_mib_s", s->deviation);
	report_number(&r, "mean_s", s->seconds);
	report_end(&r);
}

static void print_summary(const struct ior *t, const struct results *all)
{
	if (job.rank || !all->n)
		return;
	puts("\nSummary of all tests:");
	printf("%-9s %9s %9s %9s %9s %9s %6s %4s %6s %5s %10s %10s %4s\n", "Operation", "Max(MiB)",
	       "Min(MiB)", "Mean(MiB)", "StdDev", "Mean(s)", "#Tasks", "fPP", "random", "segs",
	       "blksiz", "xsize", "reps");
	for (int p = 0; p < PHASES; p++) {
		struct summary s;

		if (!(p == PHASE_WRITE ? t->write : t->read))
			continue;
		s = add_results(all->of[p], all->n);
		printf("%-9s %9.2f %9.2f %9.2f %9.2f %9.5f %6d %4d %6d %5u %10zu %10zu %4u\n",
		       phase_names[p], s.max, s.min, s.mean, s.deviation, s.seconds, job.ranks,
		       t->io.per_process, t->io.random, t->segments, t->block, t->transfer,
		       t->reps);
		report_result(t, (enum phase)p, &s);
	}
	if (t->check_write || t->check_read)
		puts("all data that was compared is right");
}

/* ---- Running ---- */

/* Returns the number of transfers that the rank wrote whose data this one reads. */
static size_t written_by(int owner, size_t mine)
{
	uint64_t *all = calloc((size_t)job.ranks, sizeof(*all)), value = mine;

	MPI_Allgather(&value, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
	value = all[owner];
	free(all);
	return value;
}

static void run_repetition(const struct ior *t, struct results *all, unsigned rep)
{
	int owner = t->reorder ? (job.rank + 1) % job.ranks : job.rank;
	size_t n = count_transfers(t);

	if (t->write) {
		all->of[PHASE_WRITE][rep] = write_phase(t, rep + 1, &n);
		print_result(t, PHASE_WRITE, &all->of[PHASE_WRITE][rep], rep);
		n = written_by(owner, n);
	}
	if (t->check_write)
		read_phase(t, rep + 1, owner, n, true, 0);
	if (t->read) {
		cool_files(t);
		all->of[PHASE_READ][rep] =
			read_phase(t, rep + 1, owner, n, t->check_read, t->deadline);
		print_result(t, PHASE_READ, &all->of[PHASE_READ][rep], rep);
	}
	remove_files(t);
}

static void run_phases(const struct ior *t)
{
	struct results all = { .n = t->reps };
	unsigned rep;

	for (int p = 0; p < PHASES; p++)
		all.of[p] = calloc(t->reps, sizeof(*all.of[p]));
	print_head(t);
	for (rep = 0; rep < t->reps; rep++)
		run_repetition(t, &all, rep);
	print_summary(t, &all);
	for (int p = 0; p < PHASES; p++)
		free(all.of[p]);
}

/* ---- The command line ---- */

static void check_options(struct ior *t)
{
	if (t->transfer % 32 || t->transfer > INT32_MAX)
		die("-t: must be a multiple of 32, and less than 2g");
	if (t->block % t->transfer)
		die("-b: must be a multiple of -t");
	if (!t->spread)
		t->spread = t->transfer;
	if (t->spread % t->transfer)
		die("--spread: must be a multiple of -t");
	if (!(t->write | t->read | t->check_write | t->check_read))
		t->write = t->read = true;
	t->read |= t->check_read;
	if (!t->io.alloc.seg && t->transfer >= 4 * KIB && !(t->transfer & (t->transfer - 1)))
		t->io.alloc.seg = t->transfer;
	access_check_segments(&t->io, t->io.random ? t->transfer : t->block);
	if (access_is(&t->io, "memory") && (!t->io.per_process || t->reorder || !t->write))
		die("-a MEMORY: has no file; it needs -F and -w, and cannot have -C");
	if (t->io.direct && strcmp(t->io.api->name, "POSIX"))
		die("--odirect: is for POSIX");
	if (t->ahead && !t->io.api->expect)
		die("--ahead: is for UMMAP and MMAP");
}

static void parse_options(struct ior *t, int argc, char **argv)
{
	static const struct option known[] = {
		ALLOC_KNOBS, ALLOC_ADVICE, { "cold", 0, 0, 'c' }, { "odirect", 0, 0, 'd' },
		{ "json", 1, 0, 'j' }, { "spread", 1, 0, 'S' }, { "ahead", 1, 0, 'A' },
		{ "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "a:b:t:s:i:o:zFCewrWRkD:h", known, NULL)) != -1) {
		switch (c) {
		case 'a': access_choose(&t->io, optarg); break;
		case 'b': t->block = parse_size("b", optarg); break;
		case 't': t->transfer = parse_size("t", optarg); break;
		case 's': t->segments = parse_count("s", optarg, 1 << 20); break;
		case 'i': t->reps = parse_count("i", optarg, 10000); break;
		case 'o': t->file = optarg; break;
		case 'z': t->io.random = true; break;
		case 'F': t->io.per_process = true; break;
		case 'C': t->reorder = true; break;
		case 'e': t->fsync = true; break;
		case 'w': t->write = true; break;
		case 'r': t->read = true; break;
		case 'W': t->check_write = true; break;
		case 'R': t->check_read = true; break;
		case 'k': t->keep = true; break;
		case 'D': t->deadline = parse_count("D", optarg, 86400); break;
		case 'c': t->cold = true; break;
		case 'S': t->spread = parse_size("spread", optarg); break;
		case 'A': t->ahead = parse_size("ahead", optarg); break;
		case 'd': t->io.direct = true; break;
		case 'j': t->json = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		default:
			if (!alloc_option(&t->io.alloc, c, optarg))
				die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	check_options(t);
}

int main(int argc, char **argv)
{
	struct ior t = {
		.file = "testFile", .block = MIB, .transfer = 256 * KIB, .segments = 1, .reps = 1,
	};

	access_choose(&t.io, "POSIX");
	parse_options(&t, argc, argv);
	job_begin(&t.io.alloc);
	t.io.file_size = t.block * t.segments * (t.io.per_process ? 1 : (size_t)job.ranks);
	make_buffers(&t);
	if (t.io.api->paged && !t.io.direct)
		job_limit(&t.io.alloc);
	run_phases(&t);
	job_end();
	return 0;
}
