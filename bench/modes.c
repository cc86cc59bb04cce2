/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that share a node's memory, in static and dynamic mode (thesis, Figure 6.4). All start
 * at the beginning, begin to work one after the other, need between an eighth and a half of the
 * limit, and wait for the last one at the end, as the ranks of a job do. Each runs STREAM's four
 * kernels on one mapping, alternately with segments in order and at random, and checks the result.
 * The resident memory of each process is sampled.
 */
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "kit/data.h"
#include "kit/policy.h"

#define MAX_PROCESSES 64
#define SCALAR 0.41421356237309503 /* repeated kernels with this factor keep their magnitude */
#define SAMPLE_MS 10
#define TOLERANCE 1.05 /* factor by which the sum may exceed the limit for a while */

static const char help[] =
	"usage: modes [OPTION ...]\n"
	"Resident memory of processes over time, in static and in dynamic mode, and without a "
	"limit that they feel; CSV on\n"
	"stdout. A row is of a moment: over_ms says for how long the sum had been over the limit "
	"by more than 5 %.\n"
	"  --dir DIR        for scratch files without names (./cache)\n"
	"  --limit SIZE     of all processes together (2G)\n"
	"  --processes N    how many (8)\n"
	"  --delay MS       from the beginning of one to that of the next (1000)\n"
	"  --iters N        of the four kernels (5)\n"
	"  --seg SEG        segment of the mappings (2M)\n"
	"  --policy NAME    fifo, lifo, plru, prnd, wiro-f or wiro-l (wiro-l: each goes over all "
	"it has again and again)\n"
	"  --seed N         for how much each needs (1)\n"
	"  --modes LIST     of static, dynamic and free (all)\n"
	"  --rows MS        from row to row (100)\n"
	"  --reps N         (1)\n"
	"  --help\n";

struct options {
	const char *dir, *modes;
	size_t limit, seg;
	unsigned processes, delay, iters, seed, rows, reps;
	int ptype;
};

/* Memory that all processes share. */
struct shared {
	_Atomic unsigned ready, done;
	_Atomic int go, end;
	size_t need[MAX_PROCESSES];
};

static struct shared *shared;

static void pause_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void await(_Atomic int *flag)
{
	while (!atomic_load(flag))
		pause_ms(1);
}

/* ---- The work of a process ---- */

struct arrays {
	double *a, *b, *c;
	size_t n;                /* number of elements of each array, in whole segments */
	size_t per_seg;
	uint32_t *order;         /* order of segments */
};

enum kernel { COPY, SCALE, ADD, TRIAD, KERNELS };

__attribute__((noinline)) static void run_segment(enum kernel k, double *restrict a,
						  double *restrict b, double *restrict c, size_t n)
{
	size_t i;

	switch (k) {
	case COPY: for (i = 0; i < n; i++) c[i] = a[i]; break;
	case SCALE: for (i = 0; i < n; i++) b[i] = SCALAR * c[i]; break;
	case ADD: for (i = 0; i < n; i++) c[i] = a[i] + b[i]; break;
	default: for (i = 0; i < n; i++) a[i] = b[i] + SCALAR * c[i];
	}
}

static void run_kernel(const struct arrays *m, enum kernel k, bool ordered)
{
	size_t i, at;

	for (i = 0; i < m->n / m->per_seg; i++) {
		at = (ordered ? i : m->order[i]) * m->per_seg;
		run_segment(k, m->a + at, m->b + at, m->c + at, m->per_seg);
	}
}

/* Checks the arrays. All elements of an array are equal. */
static void check(const struct arrays *m, unsigned iters)
{
	double a = 1, b = 2, c = 0;
	size_t i;

	for (; iters > 0; iters--) {
		c = a;
		b = SCALAR * c;
		c = a + b;
		a = b + SCALAR * c;
	}
	for (i = 0; i < m->n; i += 61)
		if (fabs(m->a[i] - a) > 1e-9 || fabs(m->b[i] - b) > 1e-9 ||
		    fabs(m->c[i] - c) > 1e-9)
			die("wrong data at %zu", i);
}

static void work(void *memory, size_t size, const struct options *o)
{
	struct arrays m = { .per_seg = o->seg / sizeof(double) };
	size_t segs = size / 3 / o->seg, i;
	unsigned iter, k;

	m.n = segs * m.per_seg;
	m.a = memory;
	m.b = m.a + m.n;
	m.c = m.b + m.n;
	m.order = malloc(segs * sizeof(*m.order));
	for (i = 0; i < segs; i++)
		m.order[i] = (uint32_t)i;
	shuffle(m.order, segs, o->seed);
	for (i = 0; i < m.n; i++) {
		m.a[i] = 1;
		m.b[i] = 2;
	}
	for (iter = 0; iter < o->iters; iter++)
		for (k = COPY; k < KERNELS; k++)
			run_kernel(&m, k, k % 2 == 0);
	check(&m, o->iters);
	free(m.order);
}

/* Returns a file without a name, which needs no removal. */
static int scratch_file(const char *dir, size_t size)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/modes.XXXXXX", dir);
	fd = mkstemp(path);
	if (fd < 0 || unlink(path) || ftruncate(fd, (off_t)size))
		die("%s: %s", path, strerror(errno));
	return fd;
}

static void set_number(const char *name, size_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%zu", value);
	setenv(name, text, 1);
}

static void run_process(unsigned i, const char *mode, const struct options *o)
{
	bool is_free = strcmp(mode, "free") == 0;
	void *addr = NULL;

	setenv("UMMAP_MEMCONFIG", is_free ? "static" : mode, 1);
	set_number("UMMAP_MEM_LIMIT", is_free ? o->limit * o->processes : o->limit);
	if (ummap(shared->need[i], o->seg, PROT_READ | PROT_WRITE,
		  scratch_file(o->dir, shared->need[i]), 0, -1, 0, o->ptype, &addr))
		die("ummap: %s", umerrormsg());
	shared->ready++;
	await(&shared->go);
	pause_ms(i * o->delay);
	work(addr, shared->need[i], o);
	if (umunmap(addr, 0))
		die("umunmap: %s", umerrormsg());
	shared->done++;
	await(&shared->end);
	exit(0);
}

/* ---- Sampling ---- */

struct watch {
	const char *mode;
	unsigned rep;
	pid_t pid[MAX_PROCESSES];
	int statm[MAX_PROCESSES];
	uint64_t begin, next_row,
		over_since; /* times in ns; over_since 0: the sum is within the limit */
	uint64_t longest;                     /* longest excess in this row, in ms */
};

static size_t resident(int statm)
{
	unsigned long size, pages = 0;
	char text[128];
	ssize_t len = pread(statm, text, sizeof(text) - 1, 0);

	text[len > 0 ? len : 0] = '\0';
	if (sscanf(text, "%lu %lu", &size, &pages) != 2)
		die("statm of a process cannot be read");
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void print_row(const struct watch *w, uint64_t now, const size_t *bytes, size_t sum,
		      const struct options *o)
{
	unsigned i;

	printf("%u,%s,%llu,%llu,%zu,%zu", w->rep, w->mode,
	       (unsigned long long)(now - w->begin) / 1000000, (unsigned long long)w->longest,
	       o->limit / MIB, sum / MIB);
	for (i = 0; i < o->processes; i++)
		printf(",%zu", bytes[i] / MIB);
	putchar('\n');
}

static void sample(struct watch *w, const struct options *o, bool last)
{
	size_t bytes[MAX_PROCESSES], sum = 0;
	uint64_t now, over;
	unsigned i;

	for (i = 0; i < o->processes; i++)
		sum += bytes[i] = resident(w->statm[i]);
	now = now_ns();
	if ((double)sum <= (double)o->limit * TOLERANCE || strcmp(w->mode, "free") == 0)
		w->over_since = 0;
	else if (!w->over_since)
		w->over_since = now;
	over = w->over_since ? (now - w->over_since) / 1000000 : 0;
	w->longest = over > w->longest ? over : w->longest;
	if (now < w->next_row && !last)
		return;
	print_row(w, now, bytes, sum, o);
	w->next_row = now + (uint64_t)o->rows * 1000000;
	w->longest = 0;
}

static void check_children(const struct watch *w, const struct options *o)
{
	unsigned i;
	int status;

	for (i = 0; i < o->processes; i++)
		if (waitpid(w->pid[i], &status, WNOHANG) != 0)
			die("a process ended early");
}

static void start_all(struct watch *w, const struct options *o)
{
	char path[64];
	unsigned i;

	fflush(stdout);
	for (i = 0; i < o->processes; i++) {
		w->pid[i] = fork();
		if (w->pid[i] < 0)
			die("fork: %s", strerror(errno));
		if (w->pid[i] == 0)
			run_process(i, w->mode, o);
		snprintf(path, sizeof(path), "/proc/%d/statm", (int)w->pid[i]);
		w->statm[i] = open_file(path, O_RDONLY);
	}
	while (shared->ready < o->processes) {
		check_children(w, o);
		pause_ms(SAMPLE_MS);
	}
}

static void end_all(const struct watch *w, const struct options *o)
{
	unsigned i;
	int status;

	shared->end = 1;
	for (i = 0; i < o->processes; i++) {
		if (waitpid(w->pid[i], &status, 0) < 0 || status)
			die("a process failed");
		close(w->statm[i]);
	}
}

static void run(const char *mode, unsigned rep, const struct options *o)
{
	struct watch w = { .mode = mode, .rep = rep };

	shared->ready = shared->done = 0;
	shared->go = shared->end = 0;
	start_all(&w, o);
	/* By now, the shares are equal. */
	pause_ms(1500);
	w.begin = now_ns();
	shared->go = 1;
	while (shared->done < o->processes) {
		sample(&w, o, false);
		check_children(&w, o);
		pause_ms(SAMPLE_MS);
	}
	sample(&w, o, true);
	fprintf(stderr, "%s: %.1f s\n", mode, (double)(now_ns() - w.begin) * 1e-9);
	end_all(&w, o);
}

/* ---- Options ---- */

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", 1, 0, 'd' },   { "limit", 1, 0, 'l' }, { "processes", 1, 0, 'p' },
		{ "delay", 1, 0, 'y' }, { "iters", 1, 0, 'i' }, { "seg", 1, 0, 'g' },
		{ "seed", 1, 0, 's' },  { "modes", 1, 0, 'm' }, { "policy", 1, 0, 'o' },
		{ "rows", 1, 0, 'w' },  { "reps", 1, 0, 'r' },  { "help", 0, 0, 'h' },
		{ 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 'l': o->limit = parse_size("limit", optarg); break;
		case 'p': o->processes = parse_count("processes", optarg, MAX_PROCESSES); break;
		case 'y': o->delay = parse_count("delay", optarg, 1000000); break;
		case 'i': o->iters = parse_count("iters", optarg, 100000); break;
		case 'g': o->seg = parse_size("seg", optarg); break;
		case 'o': o->ptype = parse_policy(optarg); break;
		case 's': o->seed = parse_count("seed", optarg, 1000000); break;
		case 'm': o->modes = optarg; break;
		case 'w': o->rows = parse_count("rows", optarg, 100000); break;
		case 'r': o->reps = parse_count("reps", optarg, 1000); break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (o->limit < 64 * o->seg)
		die("--limit: at least 64 segments");
}

static void share_out(const struct options *o)
{
	uint64_t state = o->seed * 2 + 1;
	unsigned i;

	for (i = 0; i < 8; i++)
		next_random(&state);
	for (i = 0; i < o->processes; i++) {
		shared->need[i] = o->limit / 8 + next_random(&state) % (o->limit * 3 / 8);
		fprintf(stderr, "%s%zu MiB%s", i ? ", " : "need: ", shared->need[i] / MIB,
			i + 1 < o->processes ? "" : "\n");
	}
}

int main(int argc, char **argv)
{
	struct options o = { .dir = "./cache",
			     .modes = "static,dynamic,free",
			     .limit = 2 * GIB,
			     .seg = 2 * MIB,
			     .processes = 8,
			     .delay = 1000,
			     .iters = 5,
			     .seed = 1,
			     .rows = 100,
			     .reps = 1,
			     .ptype = UMMAP_PTYPE_WIRO_L };
	char group[32], *list, *mode;
	unsigned rep, i;

	parse_options(&o, argc, argv);
	if (mkdir(o.dir, 0755) && errno != EEXIST)
		die("%s: %s", o.dir, strerror(errno));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		die("no memory");
	snprintf(group, sizeof(group), "modes.%d", (int)getpid());
	setenv("UMMAP_GROUP", group, 1);
	share_out(&o);
	printf("rep,mode,ms,over_ms,limit_mib,sum_mib");
	for (i = 1; i <= o.processes; i++)
		printf(",p%u_mib", i);
	putchar('\n');
	for (rep = 1; rep <= o.reps; rep++) {
		list = strdup(o.modes);
		for (mode = strtok(list, ","); mode; mode = strtok(NULL, ",")) {
			if (strcmp(mode, "static") && strcmp(mode, "dynamic") &&
			    strcmp(mode, "free"))
				die("--modes: '%s' is not static, dynamic or free", mode);
			run(mode, rep, &o);
		}
		free(list);
	}
	return 0;
}
