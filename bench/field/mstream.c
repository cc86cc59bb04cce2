/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mstream - throughput of one mapping: the four kernels of STREAM on three arrays, and large
 * transfers of the whole mapping, in order, at random, and mixed, where every second one jumps.
 * Storage is included: a kernel that writes ends when its data is durable, and a kernel that reads
 * begins with no segment resident. All results are checked.
 */
#include <getopt.h>
#include <math.h>

#include "kit/data.h"
#include "kit/memcg.h"
#include "alloc.h"
#include "report.h"

#define SCALAR 3.0
#define TOLERANCE 1e-13

enum { KERNELS = 10, MOST_REPS = 1000 };

struct kernel {
	const char *name;
	unsigned arrays;       /* STREAM: so many are loaded or stored; 0: a transfer */
	bool write, random, jumps;
};

static const struct kernel kernels[KERNELS] = {
	{ "copy", 2, true, false, false },
	{ "scale", 2, true, false, false },
	{ "add", 3, true, false, false },
	{ "triad", 3, true, false, false },
	{ "seq-write", 0, true, false, false },
	{ "seq-read", 0, false, false, false },
	{ "rand-write", 0, true, true, false },
	{ "rand-read", 0, false, true, false },
	{ "mixed-write", 0, true, false, true },
	{ "mixed-read", 0, false, false, true },
};

struct options {
	struct alloc alloc;
	const char *dir, *json, *kernels;
	size_t size, transfer;
	unsigned reps;
};

/* One kernel's repetitions, in seconds. */
struct times {
	double all[MOST_REPS], sync[MOST_REPS];
};

static const char help[] =
"usage: mstream [OPTION ...]\n"
"STREAM's kernels and large transfers over one mapping. MB are millions of bytes, as STREAM's.\n"
"  --alloc KIND     memory under it: %s (memory)\n"
"  --dir DIR        for a scratch file without a name (.)\n"
"  --size SIZE      of the mapping (1G)\n"
"  --transfer SIZE  (16M)\n"
"  --kernels LIST   copy,scale,add,triad and seq,rand,mixed, each with -write and -read (all)\n"
"  --reps N         repetitions; the table has their best, as STREAM's (5)\n"
"  --json FILE      add a line for each kernel to FILE\n"
ALLOC_KNOBS_HELP ALLOC_ADVICE_HELP
"  --help\n";

static struct memcg group;

/* ---- STREAM ---- */

struct arrays {
	double *a, *b, *c;
	size_t n;
	double want_a, want_b, want_c; /* each element of an array is the same */
};

static struct arrays stream_begin(struct memory *m)
{
	size_t n = m->size / (3 * sizeof(double)), i;
	struct arrays s = { .a = (double *)m->base, .n = n, .want_a = 1, .want_b = 2, .want_c = 0 };

	s.b = s.a + n;
	s.c = s.b + n;
	for (i = 0; i < n; i++)
		s.a[i] = s.want_a;
	for (i = 0; i < n; i++)
		s.b[i] = s.want_b;
	for (i = 0; i < n; i++)
		s.c[i] = s.want_c;
	return s;
}

static void run_copy(double *restrict to, const double *restrict from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

static void run_scale(double *restrict to, const double *restrict from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = SCALAR * from[i];
}

static void run_add(double *restrict to, const double *restrict x, const double *restrict y,
		    size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = x[i] + y[i];
}

static void run_triad(double *restrict to, const double *restrict x, const double *restrict y,
		      size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = x[i] + SCALAR * y[i];
}

static void stream_run(struct arrays *s, const char *name)
{
	if (!strcmp(name, "copy")) {
		run_copy(s->c, s->a, s->n);
		s->want_c = s->want_a;
	} else if (!strcmp(name, "scale")) {
		run_scale(s->b, s->c, s->n);
		s->want_b = SCALAR * s->want_c;
	} else if (!strcmp(name, "add")) {
		run_add(s->c, s->a, s->b, s->n);
		s->want_c = s->want_a + s->want_b;
	} else {
		run_triad(s->a, s->b, s->c, s->n);
		s->want_a = s->want_b + SCALAR * s->want_c;
	}
}

static void check_array(const struct memory *m, const double *array, size_t n, double want,
			const char *name)
{
	size_t first = (size_t)((const char *)array - m->base), len, done, i;
	double *buf = malloc(MIB), error = 0;

	for (done = 0; done < n; done += len) {
		len = n - done < MIB / sizeof(*buf) ? n - done : MIB / sizeof(*buf);
		memory_stored(m, buf, len * sizeof(*buf), first + done * sizeof(*buf));
		for (i = 0; i < len; i++)
			error += fabs(buf[i] - want);
	}
	free(buf);
	if (!(error / (double)n <= TOLERANCE * fabs(want)))
		die("array %s: the elements are off by %g on average: wanted %g", name,
		    error / (double)n, want);
}

static void stream_check(struct memory *m, const struct arrays *s)
{
	memory_sync(m);
	check_array(m, s->a, s->n, s->want_a, "a");
	check_array(m, s->b, s->n, s->want_b, "b");
	check_array(m, s->c, s->n, s->want_c, "c");
}

/* ---- Transfers ---- */

/* In order, shuffled, or every second one where chance will have it. */
static uint32_t *plan(const struct kernel *k, size_t n, unsigned rep)
{
	uint32_t *order = calloc(n, sizeof(*order)), *half;
	size_t i;

	for (i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	if (k->random)
		shuffle(order, n, rep);
	if (!k->jumps)
		return order;
	half = calloc(n / 2 + 1, sizeof(*half));
	for (i = 0; i < n / 2; i++)
		half[i] = order[2 * i + 1];
	shuffle(half, n / 2, rep);
	for (i = 0; i < n / 2; i++)
		order[2 * i + 1] = half[i];
	free(half);
	return order;
}

static void transfer_all(struct memory *m, const struct kernel *k, const uint32_t *order,
			 size_t transfer, uint64_t salt)
{
	size_t i, off;

	for (i = 0; i < m->size / transfer; i++) {
		off = order[i] * transfer;
		if (k->write)
			fill_words(m->base + off, transfer, off, salt);
		else if (sum_words(m->base + off, transfer) != expected_sum(transfer, off, salt))
			die("%s: wrong data at %zu", k->name, off);
	}
}

static void check_transfers(const struct memory *m, size_t transfer, uint64_t salt)
{
	char *buf = malloc(transfer);
	size_t off;

	for (off = 0; off < m->size; off += transfer) {
		memory_stored(m, buf, transfer, off);
		if (sum_words(buf, transfer) != expected_sum(transfer, off, salt))
			die("what was written is wrong at %zu", off);
	}
	free(buf);
}

/* ---- Measuring ---- */

static double seconds_since(uint64_t start)
{
	return (double)(now_ns() - start) * 1e-9;
}

static void repeat_stream(const struct options *o, struct memory *m, const struct kernel *k,
			  struct times *t)
{
	struct arrays s = stream_begin(m);
	uint64_t start, synced;
	unsigned rep;

	/* The first one is not counted. */
	for (rep = 0; rep <= o->reps; rep++) {
		start = now_ns();
		stream_run(&s, k->name);
		synced = now_ns();
		memory_sync(m);
		if (!rep)
			continue;
		t->sync[rep - 1] = seconds_since(synced);
		t->all[rep - 1] = seconds_since(start);
	}
	stream_check(m, &s);
}

static void repeat_transfers(const struct options *o, struct memory *m, const struct kernel *k,
			     struct times *t)
{
	uint64_t salt = FILE_SALT, start, synced;
	uint32_t *order;
	unsigned rep;

	memory_advise(m, k->random || k->jumps);
	if (!k->write)
		fill_words(m->base, m->size, 0, salt);
	for (rep = 0; rep < o->reps; rep++) {
		order = plan(k, m->size / o->transfer, rep);
		memory_chill(m);
		if (o->alloc.kind->stored)
			alloc_warm(&o->alloc, group.dir[0], o->size);
		salt += k->write;
		start = now_ns();
		transfer_all(m, k, order, o->transfer, salt);
		synced = now_ns();
		if (k->write)
			memory_sync(m);
		t->sync[rep] = seconds_since(synced);
		t->all[rep] = seconds_since(start);
		if (k->write)
			check_transfers(m, o->transfer, salt);
		free(order);
	}
}

static double bytes_of(const struct kernel *k, size_t size)
{
	return k->arrays ? (double)(k->arrays * (size / (3 * sizeof(double))) * sizeof(double)) :
			   (double)size;
}

static void print_results(const struct options *o, const struct kernel *k, const struct times *t)
{
	struct report r = report_begin(o->json, "mstream");
	double least = t->all[0], most = t->all[0], sum = 0, sync = 0, bytes = bytes_of(k, o->size);

	for (unsigned rep = 0; rep < o->reps; rep++) {
		least = fmin(least, t->all[rep]);
		most = fmax(most, t->all[rep]);
		sum += t->all[rep];
		sync += t->sync[rep];
	}
	printf("%-12s %12.1f %11.6f %11.6f %11.6f %8.1f\n", k->name, bytes / least * 1e-6,
	       sum / o->reps, least, most, 100 * sync / sum);
	fflush(stdout);
	report_text(&r, "alloc", o->alloc.kind->name);
	report_text(&r, "kernel", k->name);
	report_number(&r, "size", (double)o->size);
	report_number(&r, "transfer", (double)o->transfer);
	report_number(&r, "budget", (double)o->alloc.budget);
	report_number(&r, "best_mb_s", bytes / least * 1e-6);
	report_number(&r, "mean_mb_s", bytes / sum * o->reps * 1e-6);
	report_number(&r, "sync_share", sync / sum);
	report_end(&r);
}

static bool is_wanted(const char *list, const char *name)
{
	char *copied = strdup(list), *rest = copied, *item;
	bool found = false;

	while ((item = strsep(&rest, ",")))
		found |= !strcmp(item, name);
	free(copied);
	return found;
}

static void run_kernel(const struct options *o)
{
	struct times *t = calloc(1, sizeof(*t));

	printf("mstream: %s, %zu MiB, transfers of %zu KiB, %u repetitions\n", o->alloc.kind->name,
	       o->size / MIB, o->transfer / KIB, o->reps);
	printf("%-12s %12s %11s %11s %11s %8s\n", "kernel", "best MB/s", "avg time", "min time",
	       "max time", "sync %");
	for (unsigned i = 0; i < KERNELS; i++) {
		struct memory *m;

		if (!is_wanted(o->kernels, kernels[i].name))
			continue;
		m = memory_scratch(&o->alloc, o->dir, o->size);
		if (kernels[i].arrays)
			repeat_stream(o, m, &kernels[i], t);
		else
			repeat_transfers(o, m, &kernels[i], t);
		memory_close(m);
		print_results(o, &kernels[i], t);
	}
	free(t);
	puts("all results are right");
}

/* ---- The command line ---- */

static void leave_group(void)
{
	memcg_leave(&group);
	memcg_remove(&group);
}

static void set_limit(const struct options *o)
{
	alloc_limit(&o->alloc, 1, getpid());
	if (!o->alloc.budget || !o->alloc.kind->paged)
		return;
	if (!memcg_create(&group, o->alloc.budget))
		die("--budget: %s", group.why);
	atexit(leave_group);
	if (!memcg_join(&group))
		die("%s: %s", group.dir, strerror(errno));
}

static void check_options(struct options *o)
{
	char *copied = strdup(o->kernels), *rest = copied, *item;

	while ((item = strsep(&rest, ","))) {
		bool known = false;

		for (unsigned i = 0; i < KERNELS; i++)
			known |= !strcmp(item, kernels[i].name);
		if (!known)
			die("--kernels: there is no '%s'; see --help", item);
	}
	free(copied);
	if (o->transfer % 32 || o->size % o->transfer)
		die("--size: must be a multiple of --transfer, and that of 32");
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		ALLOC_OPTIONS, ALLOC_ADVICE, { "dir", 1, 0, 'd' }, { "size", 1, 0, 's' },
		{ "transfer", 1, 0, 't' }, { "kernels", 1, 0, 'k' }, { "reps", 1, 0, 'r' },
		{ "json", 1, 0, 'j' }, { "help", 0, 0, 'h' },
		{ 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 's': o->size = parse_size("size", optarg); break;
		case 't': o->transfer = parse_size("transfer", optarg); break;
		case 'k': o->kernels = optarg; break;
		case 'r': o->reps = parse_count("reps", optarg, MOST_REPS); break;
		case 'j': o->json = optarg; break;
		case 'h': printf(help, alloc_names()); exit(0);
		default:
			if (!alloc_option(&o->alloc, c, optarg))
				die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	check_options(o);
}

int main(int argc, char **argv)
{
	struct options o = {
		.alloc = { .kind = alloc_find("memory") }, .dir = ".", .size = GIB,
		.transfer = 16 * MIB, .reps = 5,
		.kernels = "copy,scale,add,triad,seq-write,seq-read,rand-write,rand-read,"
			   "mixed-write,mixed-read",
	};

	parse_options(&o, argc, argv);
	set_limit(&o);
	run_kernel(&o);
	return 0;
}
