/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The time of one load or store that faults, by kind of fault, compared with the operations that it
 * needs (series.h). The library's counters before and after each access tell which kind of fault it
 * was, and whether a segment was evicted for it.
 */
#include <getopt.h>
#include <sys/wait.h>

#include "field/report.h"
#include "kit/kernel_faults.h"
#include "ummap.h"

/* Maximum number of frames. Each takes up to three VMAs while it is resident. */
enum { MAX_SEGS = 16, MAX_FRAMES = 16384 };
/* Maximum number of accesses to each segment in a series. */
enum { TOUCHES = 8 };

/* A mapping of the data file, or of the scratch file without reading it. */
struct target {
	struct series *series;
	char *base;
	bool zero;
};

static const char help[] =
"usage: fault [OPTION ...]\n"
"Times single faults on a warm file and on zero fill; CSV on stdout.\n"
"  --alloc LIST     ummap, mmap (of the same files), memory (ummap)\n"
"  --dir DIR        for two files of twice the budget, removed afterwards (/dev/shm)\n"
"  --budget BUDGET  of memory (256M); at most 16384 segments of it are used\n"
"  --seg LIST       4K,64K,256K,2M\n"
"  --reps N         each of them gives rows of its own (5)\n"
"  --policy NAME    of the library (fifo)\n"
"  --driver URI     of the library: as UMMAP_DRIVER, 'posix' or 'uring:?depth=64' (posix)\n"
"  --engine LIST    segv,uffd\n"
"  --mode MODE      of the library: static or dynamic, as UMMAP_MEMCONFIG (dynamic)\n"
"  --json FILE      add a line for each row to FILE\n"
"  --help\n";

/* Options of the command line. */
static const char *driver = "posix", *policy = "fifo", *json;

static struct target open_target(struct series *s, bool zero)
{
	struct target t = { .series = s, .zero = zero };
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[2 * PATH_MAX];
	int scheme = (int)strcspn(driver, ":");
	void *addr = NULL;

	/* Keys of the driver follow the path. */
	snprintf(uri, sizeof(uri), "%.*s:%s%s", scheme, driver, zero ? scratch_path : data_path,
		 driver[scheme] ? driver + scheme + 1 : "");
	attr.seg_size = s->seg;
	attr.policy = policy;
	attr.flags = zero ? UMMAP_BLANK : 0;
	if (ummap_open(uri, 2 * s->n * s->seg, 0, PROT_READ | PROT_WRITE, &attr, &addr))
		die("ummap_open %s: %s", uri, umerrormsg());
	t.base = addr;
	if (umadvise(addr, 2 * s->n * s->seg, UMMAP_ADV_RANDOM))
		die("umadvise: %s", umerrormsg());
	return t;
}

static void close_target(struct target *t)
{
	if (umunmap(t->base, 0))
		die("umunmap: %s", umerrormsg());
}

static struct umstat counters(const struct target *t)
{
	struct umstat st = { .struct_size = sizeof(st) };

	if (umstat(t->base, &st))
		die("umstat: %s", umerrormsg());
	return st;
}

/* Returns the kind of fault between the two counters; KINDS: none. */
static enum kind classify(const struct target *t, const struct umstat *a, const struct umstat *b)
{
	if (b->readahead_hits > a->readahead_hits)
		return AHEAD_READ;
	if (b->inactive_hits > a->inactive_hits)
		return STANDBY_READ;
	if (b->upgrade_faults > a->upgrade_faults)
		return UPGRADE_WRITE;
	if (b->write_faults > a->write_faults)
		return t->zero ? ZERO_WRITE : FILE_WRITE;
	if (b->read_faults > a->read_faults)
		return t->zero ? ZERO_READ : FILE_READ;
	return KINDS;
}

/* Measures one load or store in the i-th segment of the order. Stores keep the data of the file. */
static void touch(struct target *t, size_t i, bool store)
{
	struct series *s = t->series;
	size_t off = s->order[i] * s->seg;
	uint64_t start, ns, content = FILE_SALT + off / 8 * STRIDE, value = content;
	volatile uint64_t *word = (volatile uint64_t *)(t->base + off);
	struct umstat before = counters(t), after;
	struct bucket *b;
	enum kind kind;

	start = now_ns();
	if (store)
		*word = content;
	else
		value = *word;
	ns = now_ns() - start;
	after = counters(t);
	kind = classify(t, &before, &after);
	if (value != (t->zero && !store ? 0 : content))
		die("wrong data at %zu", off);
	if (kind == KINDS)
		return;
	b = &s->found[kind][after.evictions > before.evictions];
	b->ns[b->n++] = ns;
}

static void touch_all(struct target *t, size_t from, size_t to, bool store)
{
	size_t i;

	for (i = from; i < to; i++)
		touch(t, i, store);
}

/* Accesses twice the budget: the first half faults without, the second half with eviction. */
static void absent(struct series *s, bool zero, bool store)
{
	struct target t = open_target(s, zero);

	touch_all(&t, 0, 2 * s->n, store);
	close_target(&t);
}

static void zero_reads(struct series *s)
{
	absent(s, true, false);
}

static void zero_writes(struct series *s)
{
	absent(s, true, true);
}

static void file_reads(struct series *s)
{
	absent(s, false, false);
}

static void file_writes(struct series *s)
{
	absent(s, false, true);
}

/* Loads half of the budget's segments, and then stores to them. */
static void upgrades(struct series *s)
{
	struct target t = open_target(s, false);

	touch_all(&t, 0, s->n / 2, false);
	touch_all(&t, 0, s->n / 2, true);
	close_target(&t);
}

static void advise(struct target *t, size_t from, size_t to, int advice)
{
	struct series *s = t->series;
	size_t i;

	for (i = from; i < to; i++)
		if (umadvise(t->base + s->order[i] * s->seg, s->seg, advice))
			die("umadvise: %s", umerrormsg());
}

/*
 * Accesses a file that does not fit into the budget in reverse order: the most recent segments are
 * inactive. Dropping the `room` most recent segments before makes room for as many others to return
 * without an eviction.
 */
static void returning(struct series *s, size_t room)
{
	struct target t = open_target(s, false);
	size_t i;

	touch_all(&t, 0, 2 * s->n, false);
	advise(&t, 2 * s->n - room, 2 * s->n, UMMAP_ADV_DONTNEED);
	for (i = 2 * s->n - room; i-- > 0;)
		touch(&t, i, false);
	close_target(&t);
}

static void standby(struct series *s)
{
	returning(s, 0);
}

static void standby_with_room(struct series *s)
{
	returning(s, s->n / 4);
}

/* Segments that readahead has loaded are inactive. */
static void ahead(struct series *s)
{
	struct target t = open_target(s, false);
	size_t some = s->n / 8;
	uint64_t start = now_ns();

	advise(&t, 0, some, UMMAP_ADV_WILLNEED);
	while (counters(&t).inactive_bytes < some * s->seg && now_ns() - start < 1000000000)
		usleep(1000);
	touch_all(&t, 0, some, false);
	close_target(&t);
}

static void print_row(const struct series *s, const char *kind, unsigned evict, struct figure f,
		      uint64_t raw)
{
	struct report r = report_begin(json, "fault");

	printf("%s,%zu,%u,%zu,%llu,%llu,%llu,%.3f,%s\n", kind, s->seg, evict, f.n,
	       (unsigned long long)f.median, (unsigned long long)f.p99, (unsigned long long)raw,
	       (double)f.median / (double)raw, servers[s->server]);
	report_text(&r, "kind", kind);
	report_text(&r, "engine", servers[s->server]);
	report_text(&r, "driver", driver);
	report_text(&r, "policy", policy);
	report_number(&r, "seg", (double)s->seg);
	report_number(&r, "evict", evict);
	report_number(&r, "n", (double)f.n);
	report_number(&r, "median_ns", (double)f.median);
	report_number(&r, "p99_ns", (double)f.p99);
	report_number(&r, "raw_ns", (double)raw);
	report_end(&r);
}

/* Returns the cost of the needed operations. For servers of the kernel, it is the median itself. */
static uint64_t raw_cost(const struct series *s, enum kind kind, bool evict, uint64_t median)
{
	return s->server >= MMAP ? median :
				   kind_cost(s->parts, kind, evict, s->server == UFFD_ENGINE);
}

static void print_series(const struct series *s)
{
	uint64_t cost = clock_cost();
	unsigned part, kind, evict;

	for (part = 0; part < PARTS; part++)
		if (s->parts[part].n)
			print_row(s, part_names[part], part == RETRACT, s->parts[part],
				  s->parts[part].median);
	for (kind = 0; kind < KINDS; kind++)
		for (evict = 0; evict < 2; evict++) {
			const struct bucket *b = &s->found[kind][evict];
			struct figure f;

			if (!b->n)
				continue;
			f = summarize(b->ns, b->n, cost);
			print_row(s, kind_names[kind], evict, f,
				  raw_cost(s, kind, evict, f.median));
		}
	fflush(stdout);
}

/* Returns memory that children share. */
static void *shared_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(p != MAP_FAILED, "mmap");
	return p;
}

/* Runs in its own process, because the library reads its budget once, and must have no frames yet.
 * */
static void start(void (*phase)(struct series *), struct series *s)
{
	pid_t pid = fork();
	char limit[32];
	int status;

	must(pid >= 0, "fork");
	if (!pid) {
		snprintf(limit, sizeof(limit), "%zu", s->n * s->seg);
		setenv("UMMAP_MEM_LIMIT", limit, 1);
		if (s->server < MMAP)
			setenv("UMMAP_ENGINE", servers[s->server], 1);
		phase(s);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid, "wait");
	if (status)
		die("a process for segments of %zu failed (status %d)", s->seg, status);
}

static void raw_phase(struct series *s)
{
	int fd = open_file(data_path, O_RDONLY);

	raw_measure(s->parts, s->seg, s->n, fd, s->seed, s->server == UFFD_ENGINE);
}

/* One repetition for one server and segment size. */
static void run_series(enum server server, size_t seg, size_t budget, uint64_t seed)
{
	static void (*const ours[])(struct series *) = {
		raw_phase, zero_reads, zero_writes, file_reads, file_writes, upgrades, standby,
		standby_with_room, ahead, NULL,
	};
	static void (*const of_mmap[])(struct series *) = { kernel_zero, kernel_file, NULL };
	static void (*const of_memory[])(struct series *) = { kernel_zero, NULL };
	void (*const *phase)(struct series *) = server == MMAP   ? of_mmap :
						server == MEMORY ? of_memory :
								   ours;
	struct series *s = shared_memory(sizeof(*s));
	size_t room, i;
	unsigned kind, evict;

	s->server = server;
	s->seg = seg;
	s->n = budget / seg < MAX_FRAMES ? budget / seg : MAX_FRAMES;
	s->seed = seed;
	s->order = calloc(2 * s->n, sizeof(*s->order));
	for (i = 0; i < 2 * s->n; i++)
		s->order[i] = (uint32_t)i;
	shuffle(s->order, 2 * s->n, seed);
	room = TOUCHES * 2 * s->n * sizeof(uint64_t);
	for (kind = 0; kind < KINDS; kind++)
		for (evict = 0; evict < 2; evict++)
			s->found[kind][evict].ns = shared_memory(room);
	for (; *phase; phase++)
		start(*phase, s);
	print_series(s);
	for (kind = 0; kind < KINDS; kind++)
		for (evict = 0; evict < 2; evict++)
			munmap(s->found[kind][evict].ns, room);
	free(s->order);
	munmap(s, sizeof(*s));
}

static void remove_files(void)
{
	unlink(data_path);
	unlink(scratch_path);
}

static void interrupted(int sig)
{
	(void)sig;
	remove_files();
	_exit(1);
}

static void prepare(const char *dir, size_t size)
{
	int fd;

	snprintf(data_path, sizeof(data_path), "%s/ummap-fault-%d.data", dir, (int)getpid());
	snprintf(scratch_path, sizeof(scratch_path), "%s/ummap-fault-%d.out", dir, (int)getpid());
	fd = open_file(scratch_path, O_RDWR | O_CREAT);
	atexit(remove_files);
	signal(SIGINT, interrupted);
	signal(SIGTERM, interrupted);
	if (ftruncate(fd, (off_t)size))
		die("%s: %s", scratch_path, strerror(errno));
	close(fd);
	make_file(data_path, size);
}

struct options {
	size_t segs[MAX_SEGS], budget;
	unsigned nsegs, reps;
	bool used[SERVERS];
	const char *dir;
};

/* Marks the names of the list, which must be among n names. */
static void choose(bool *used, const char *option, char *list, const char *const *names, unsigned n)
{
	for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		unsigned i = 0;

		while (i < n && strcmp(names[i], name) != 0)
			i++;
		if (i == n)
			die("--%s: there is no '%s'; see --help", option, name);
		used[i] = true;
	}
}

static void choose_servers(struct options *o, char *alloc, char *engine)
{
	static const char *const allocs[] = { "ummap", "mmap", "memory" };
	bool kinds[3] = { false };

	choose(kinds, "alloc", alloc, allocs, 3);
	if (kinds[0])
		choose(o->used, "engine", engine, servers, MMAP);
	o->used[MMAP] = kinds[1];
	o->used[MEMORY] = kinds[2];
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "alloc", 1, 0, 'a' },  { "dir", 1, 0, 'd' },    { "budget", 1, 0, 'b' },
		{ "seg", 1, 0, 's' },    { "reps", 1, 0, 'r' },   { "policy", 1, 0, 'p' },
		{ "driver", 1, 0, 'D' }, { "engine", 1, 0, 'e' }, { "mode", 1, 0, 'm' },
		{ "json", 1, 0, 'j' },   { "help", 0, 0, 'h' },   { 0, 0, 0, 0 },
	};
	char default_alloc[] = "ummap", default_engine[] = "segv,uffd", *alloc = default_alloc,
	     *engine = default_engine;
	unsigned i;
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'a': alloc = optarg; break;
		case 'd': o->dir = optarg; break;
		case 'b': o->budget = parse_size("budget", optarg); break;
		case 's': o->nsegs = parse_sizes("seg", optarg, o->segs, MAX_SEGS); break;
		case 'r': o->reps = parse_count("reps", optarg, 1000); break;
		case 'p': policy = optarg; break;
		case 'D': driver = optarg; break;
		case 'e': engine = optarg; break;
		case 'm': setenv("UMMAP_MEMCONFIG", optarg, 1); break;
		case 'j': json = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	choose_servers(o, alloc, engine);
	for (i = 0; i < o->nsegs; i++)
		if (o->segs[i] < 4 * KIB || o->segs[i] & (o->segs[i] - 1) ||
		    o->budget < 8 * o->segs[i])
			die("--seg: %zu is no power of two from 4K to an eighth of the budget",
			    o->segs[i]);
}

int main(int argc, char **argv)
{
	struct options o = {
		.segs = { 4 * KIB, 64 * KIB, 256 * KIB, 2 * MIB }, .nsegs = 4,
		.budget = 256 * MIB, .reps = 5, .dir = "/dev/shm",
	};
	unsigned rep, i, k;

	parse_options(&o, argc, argv);
	prepare(o.dir, 2 * o.budget);
	puts("kind,seg_bytes,evict,n,median_ns,p99_ns,raw_ns,ratio,engine");
	fflush(stdout);
	for (rep = 1; rep <= o.reps; rep++)
		for (i = 0; i < o.nsegs; i++)
			for (k = 0; k < SERVERS; k++)
				if (o.used[k])
					run_series(k, o.segs[i], o.budget, rep * MAX_SEGS + i);
	return 0;
}
