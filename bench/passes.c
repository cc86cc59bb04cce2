/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passes over a file larger than the budget, in order or at random, that read or write each word,
 * with the library and with other methods (methods.h). Each measurement runs in its own process,
 * and each pass has a cold page cache. All data are checked.
 */
#include <getopt.h>
#include <libgen.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "kit/memcg.h"
#include "kit/methods.h"
#include "kit/policy.h"
#include "kit/zipf.h"

enum { STEP = 4, MAX_SEGS = 16, MAX_THREADS = 64, MAX_THREAD_COUNTS = 8, ZIPF_TURNS = 16 };

struct options {
	char file[PATH_MAX];
	size_t size, budget;
	size_t segs[MAX_SEGS];
	size_t threads[MAX_THREAD_COUNTS];
	unsigned nsegs, nthreads, reps, passes, cap_s;
	int ptype;
	const char *methods, *patterns, *ops, *drivers, *engines;
	const char *one;    /* internal: the pass to run in this process */
	char **argv;
};

static const char help[] =
	"usage: passes [OPTION ...]\n"
	"Reads and writes a file of SIZE segment by segment within BUDGET of memory; CSV on "
	"stdout.\n"
	"  --dir DIR          where the files are kept for the next time (./cache)\n"
	"  --file FILE        the file to read; FILE.out is written (DIR/passes.data)\n"
	"  --size SIZE        2G\n"
	"  --budget BUDGET    512M\n"
	"  --segs LIST        64K,256K,1M,2M,16M\n"
	"  --threads LIST     1,2\n"
	"  --methods LIST     ummap,fresh,floor,mmap,inplace,deep (or one of it: deep1 to "
	"deep32),\n"
	"                     or willneed: mmap that is told of each segment before it is read, "
	"or\n"
	"                     listed: fresh, told of 5000 segments at a time; or auto: fresh, "
	"with\n"
	"                     UMMAP_SEG_AUTO and without advice\n"
	"  --patterns LIST    seq,rand (stride: every 4th segment; zipf: few often, 16 accesses a "
	"segment)\n"
	"  --ops LIST         read,write (modify: read and written)\n"
	"  --reps N           times that every method takes its turn (5)\n"
	"  --passes N         one after the other over the same mapping (1)\n"
	"  --mmap-cap SECONDS when mmap at random stops, as it would take minutes; counts what it "
	"touched (15)\n"
	"  --drivers LIST     ummap by URI instead of descriptor, once for each: schemes, and keys "
	"if any:\n"
	"                     'posix?direct=never,uring'\n"
	"  --engines LIST     ummap with each of them: auto,segv,uffd,sigbus (segv)\n"
	"  --policy POLICY    of the library: fifo,lifo,plru,prnd,wiro-f,wiro-l,s3fifo (s3fifo, "
	"the default)\n"
	"  --help\n";

static struct memcg group;
static volatile sig_atomic_t stopped;

/* ---- One pass, in the child ---- */

static void plan_zipf(struct worker *w, const struct pass *p, unsigned index)
{
	size_t segments = p->size / p->seg;

	w->segments = segments * ZIPF_TURNS / p->threads;
	w->order = zipf_draws((uint32_t)segments, w->segments, 1, p->rep * MAX_THREADS + index);
}

/* Sets the order of a thread: a contiguous part of the file, every 4th segment, or the same
 * segments shuffled. */
static void plan(struct worker *w, struct pass *p, unsigned index)
{
	size_t i;

	w->pass = p;
	if (p->zipf) {
		plan_zipf(w, p, index);
		return;
	}
	w->segments = p->size / p->seg / p->threads / p->step;
	w->order = calloc(w->segments, sizeof(*w->order));
	for (i = 0; i < w->segments; i++)
		w->order[i] = (uint32_t)((index * w->segments + i) * p->step);
	if (p->random)
		shuffle(w->order, w->segments, p->rep * MAX_THREADS + index);
}

/* Checks a segment. A written file holds data of one pass or another in each segment. */
static void check_segment(const struct pass *p, const char *at, size_t off)
{
	uint64_t salt = p->modify ? *(const uint64_t *)at - off / 8 * STRIDE : FILE_SALT;

	if (sum_words(at, p->seg) != expected_sum(p->seg, off, salt))
		die("%s read wrong data at %zu (if the file is damaged, remove it)",
		    p->method->name, off);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct pass *p = w->pass;
	const struct method *m = p->method;

	for (; w->done < w->segments && (!w->deadline || now_ns() < w->deadline); w->done++) {
		size_t off = w->order[w->done] * p->seg;
		char *at = m->enter(w, off);

		if (reads(p))
			check_segment(p, at, off);
		if (p->write)
			fill_words(at, p->seg, off, p->salt);
		if (m->leave)
			m->leave(w, off, at);
	}
	if (p->write && m->finish_worker)
		m->finish_worker(w);
	return NULL;
}

/* Checks the data that the pass has written, by reading from the device. */
static void verify(struct worker *workers, struct pass *p)
{
	char *buf = huge_memory(p->seg);
	unsigned t;
	size_t i, off;

	for (t = 0; t < p->threads; t++)
		for (i = 0; i < workers[t].done; i++) {
			off = workers[t].order[i] * p->seg;
			read_whole(p->direct, buf, p->seg, off);
			if (sum_words(buf, p->seg) != expected_sum(p->seg, off, p->salt))
				die("%s wrote wrong data at %zu", p->method->name, off);
		}
}

static double cpu_us(const struct rusage *u)
{
	return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e6 +
	       (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static void report(const struct pass *p, double mib, double seconds, double cpu, long maxrss,
		   bool cold, double misses, unsigned number)
{
	printf("%u,%s,%s,%s,%zu,%u,%.1f,%.2f,%ld,%d,%s,%s,%.4f,%u\n", p->rep, p->method->name,
	       p->zipf     ? "zipf" :
	       p->random   ? "rand" :
	       p->step > 1 ? "stride" :
			     "seq",
	       p->modify ? "modify" :
	       p->write  ? "write" :
			   "read",
	       p->seg, p->threads, mib / seconds, cpu / mib, maxrss, cold,
	       p->driver ? p->driver : "-", p->engine, misses, number);
	fflush(stdout);
}

/* Returns the segments that were loaded, or the faults of the kernel's mmap that waited for I/O. */
static uint64_t loads(const struct pass *p, const struct rusage *u)
{
	struct umstat st = { .struct_size = sizeof(st) };

	if (!p->method->counts)
		return (uint64_t)u->ru_majflt;
	if (umstat(p->view, &st) < 0)
		die("umstat: %s", umerrormsg());
	return st.read_faults + st.write_faults - st.inactive_hits - st.readahead_hits +
	       st.readahead_loads;
}

static void run_pass(struct pass *p, struct worker *workers, unsigned number)
{
	struct rusage before, after;
	uint64_t start, end, loaded;
	size_t done = 0;
	bool cold;
	unsigned t;

	for (t = 0; t < p->threads; t++) {
		workers[t].done = 0;
		if (p->method->begin_worker)
			p->method->begin_worker(&workers[t]);
	}
	cold = drop_cache(p->fd, p->size);
	getrusage(RUSAGE_SELF, &before);
	loaded = loads(p, &before);
	start = now_ns();
	for (t = 0; t < p->threads; t++)
		if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
			die("no thread");
	for (t = 0; t < p->threads; t++) {
		pthread_join(workers[t].thread, NULL);
		done += workers[t].done;
	}
	if (p->write)
		p->method->finish(p);
	end = now_ns();
	getrusage(RUSAGE_SELF, &after);
	loaded = loads(p, &after) - loaded;
	if (p->write)
		verify(workers, p);
	report(p, (double)done * (double)p->seg / (double)MIB, (double)(end - start) * 1e-9,
	       cpu_us(&after) - cpu_us(&before), after.ru_maxrss, cold,
	       (double)loaded / (double)done, number);
}

static void run_passes(struct pass *p, unsigned passes)
{
	struct worker workers[MAX_THREADS] = { 0 };

	p->fd = open_file(p->path, p->write ? O_RDWR : O_RDONLY);
	p->direct = open_file(p->path, (p->write ? O_RDWR : O_RDONLY) | O_DIRECT);
	p->salt = now_ns();
	if (p->method->begin)
		p->method->begin(p);
	for (unsigned t = 0; t < p->threads; t++)
		plan(&workers[t], p, t);
	for (unsigned number = 1; number <= passes; number++)
		run_pass(p, workers, number);
}

static const struct method *find_method(const char *name)
{
	unsigned i;

	for (i = 0; i < METHODS; i++)
		if (!strcmp(methods[i].name, name))
			return &methods[i];
	die("--methods: no method '%s'", name);
}

static int child(const struct options *o)
{
	struct pass p = { .size = o->size, .budget = o->budget, .cap_s = o->cap_s,
			  .ptype = o->ptype };
	char method[16], pattern[8], op[8], driver[128], engine[8], path[PATH_MAX + 8];

	if (sscanf(o->one, "%15[^,],%7[^,],%7[^,],%zu,%u,%u,%127[^,],%7s", method, pattern, op,
		   &p.seg, &p.threads, &p.rep, driver, engine) != 8)
		die("--one is internal");
	setenv("UMMAP_ENGINE", engine, 1);
	p.engine = engine;
	p.method = find_method(method);
	p.driver = strcmp(driver, "-") ? driver : NULL;
	p.zipf = !strcmp(pattern, "zipf");
	p.random = p.zipf || !strcmp(pattern, "rand");
	p.step = strcmp(pattern, "stride") ? 1 : STEP;
	p.modify = !strcmp(op, "modify");
	p.write = p.modify || !strcmp(op, "write");
	snprintf(path, sizeof(path), "%s%s", o->file, p.write ? ".out" : "");
	p.path = path;
	run_passes(&p, o->passes);
	return 0;
}

/* ---- All passes, in the parent ---- */

static bool in_list(const char *list, const char *name)
{
	size_t len = strlen(name);
	const char *at = list;

	while ((at = strstr(at, name)) &&
	       ((at > list && at[-1] != ',') || (at[len] && at[len] != ',')))
		at++;
	return at;
}

/* Executes this program again to run one pass. */
__attribute__((noreturn)) static void start_pass(const struct options *o, const char *one,
						 bool grouped)
{
	size_t n = 0;
	char **argv, bytes[32];

	while (o->argv[n])
		n++;
	argv = calloc(n + 3, sizeof(*argv));
	argv[0] = o->argv[0];
	argv[1] = "--one";
	argv[2] = (char *)one;
	memcpy(argv + 3, o->argv + 1, (n - 1) * sizeof(*argv));
	snprintf(bytes, sizeof(bytes), "%zu", o->budget);
	setenv("UMMAP_MEM_LIMIT", bytes, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (grouped && !memcg_join(&group))
		die("%s: %s", group.dir, strerror(errno));
	execv("/proc/self/exe", argv);
	die("exec: %s", strerror(errno));
}

static void run_child(const struct options *o, const char *one, bool grouped)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid)
		start_pass(o, one, grouped);
	while (waitpid(pid, &status, 0) < 0)
		if (stopped)
			kill(pid, SIGKILL);
	if (status && !stopped)
		die("the pass %s failed (%s %d)", one,
		    WIFSIGNALED(status) ? "signal" : "exit status",
		    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	if (stopped)
		exit(1);
}

static void take_turn_with(const struct options *o, const char *method, const char *what,
			   const char *driver)
{
	bool ours = find_method(method)->counts, grouped = find_method(method)->kernel;
	char *copy = strdup(ours ? o->engines : "-"), *rest = copy, *engine, one[256];

	while ((engine = strsep(&rest, ","))) {
		snprintf(one, sizeof(one), "%s,%s,%s,%s", method, what, driver, engine);
		run_child(o, one, grouped);
	}
	free(copy);
}

/* Measures one method; for the library, with each driver and engine. */
static void take_turn(const struct options *o, const char *method, const char *what)
{
	bool ours = find_method(method)->counts;
	char *copy = strdup(ours ? o->drivers : "-"), *rest = copy, *driver;

	while ((driver = strsep(&rest, ",")))
		take_turn_with(o, method, what, driver);
	free(copy);
}

/* Measures each method. The first method changes with each repetition. */
static void take_turns(const struct options *o, unsigned rep, const char *pattern, const char *op,
		       size_t seg, size_t threads)
{
	char what[128];
	unsigned i;

	if (!in_list(o->ops, op) || !in_list(o->patterns, pattern))
		return;
	for (i = 0; i < METHODS; i++) {
		const struct method *m = &methods[(i + rep) % METHODS];

		if (!in_list(o->methods, m->name) && !(m->depth && in_list(o->methods, "deep")))
			continue;
		if (m->kernel && !group.dir[0])
			continue;
		snprintf(what, sizeof(what), "%s,%s,%zu,%zu,%u", pattern, op, seg, threads, rep);
		take_turn(o, m->name, what);
	}
}

static void stop(int sig)
{
	stopped = sig;
}

static void remove_group(void)
{
	memcg_remove(&group);
}

static void prepare(const struct options *o)
{
	struct sigaction action = { .sa_handler = stop };
	char out[PATH_MAX + 8];

	make_file(o->file, o->size);
	if (in_list(o->ops, "write") || in_list(o->ops, "modify")) {
		snprintf(out, sizeof(out), "%s.out", o->file);
		make_file(out, o->size);
	}
	if ((in_list(o->methods, "mmap") || in_list(o->methods, "willneed")) &&
	    !memcg_create(&group, o->budget))
		fprintf(stderr, "passes: the kernel's mmap is left out: %s\n", group.why);
	atexit(remove_group);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int parent(const struct options *o)
{
	static const char *const patterns[] = { "seq", "rand", "stride", "zipf" };
	static const char *const ops[] = { "read", "write", "modify" };
	unsigned rep, t, op, pattern, s;

	prepare(o);
	puts("rep,method,pattern,op,seg_bytes,threads,mib_per_s,cpu_us_per_mib,maxrss_kib,cold,"
	     "driver,engine,misses,pass");
	fflush(stdout);
	for (rep = 1; rep <= o->reps; rep++)
		for (t = 0; t < o->nthreads; t++)
			for (op = 0; op < 3; op++)
				for (pattern = 0; pattern < 4; pattern++)
					for (s = 0; s < o->nsegs; s++)
						take_turns(o, rep, patterns[pattern], ops[op],
							   o->segs[s], o->threads[t]);
	return 0;
}

/* ---- The command line ---- */

static void check_list(const char *option, const char *list, const char *known)
{
	char *copy = strdup(list), *rest = copy, *item;

	while ((item = strsep(&rest, ",")))
		if (!in_list(known, item) || !*item)
			die("--%s: '%s' is none of %s", option, item, known);
	free(copy);
}

static void check_options(struct options *o)
{
	unsigned s, t;

	check_list("methods", o->methods,
		   "ummap,fresh,auto,listed,floor,mmap,willneed,inplace,deep,deep1,deep2,deep4,"
		   "deep8,deep16,deep32");
	check_list("patterns", o->patterns, "seq,rand,stride,zipf");
	check_list("ops", o->ops, "read,write,modify");
	check_list("engines", o->engines, "auto,segv,uffd,sigbus");
	for (t = 0; t < o->nthreads; t++) {
		if (o->threads[t] > MAX_THREADS)
			die("--threads: at most %d", MAX_THREADS);
		for (s = 0; s < o->nsegs; s++) {
			if (o->segs[s] < 4 * KIB || o->segs[s] & (o->segs[s] - 1))
				die("--segs: %zu is no power of two of at least 4K", o->segs[s]);
			if (o->size % (o->segs[s] * o->threads[t] * STEP))
				die("--size must be a multiple of %d x threads x segment (%zu x "
				    "%zu)",
				    STEP, o->threads[t], o->segs[s]);
			if (o->budget < 2 * o->segs[s] * o->threads[t])
				die("--budget must hold two segments of %zu for each thread",
				    o->segs[s]);
		}
	}
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", 1, 0, 'd' },     { "file", 1, 0, 'f' },     { "size", 1, 0, 's' },
		{ "budget", 1, 0, 'b' },  { "segs", 1, 0, 'g' },     { "threads", 1, 0, 't' },
		{ "methods", 1, 0, 'm' }, { "patterns", 1, 0, 'p' }, { "ops", 1, 0, 'o' },
		{ "reps", 1, 0, 'r' },    { "mmap-cap", 1, 0, 'c' }, { "drivers", 1, 0, 'u' },
		{ "engines", 1, 0, 'e' }, { "passes", 1, 0, 'n' },   { "policy", 1, 0, 'y' },
		{ "one", 1, 0, '1' },     { "help", 0, 0, 'h' },     { 0, 0, 0, 0 },
	};
	const char *dir = "./cache";
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': dir = optarg; break;
		case 'f': snprintf(o->file, sizeof(o->file), "%s", optarg); break;
		case 's': o->size = parse_size("size", optarg); break;
		case 'b': o->budget = parse_size("budget", optarg); break;
		case 'g': o->nsegs = parse_sizes("segs", optarg, o->segs, MAX_SEGS); break;
		case 't':
			o->nthreads = parse_sizes("threads", optarg, o->threads, MAX_THREAD_COUNTS);
			break;
		case 'm': o->methods = optarg; break;
		case 'p': o->patterns = optarg; break;
		case 'o': o->ops = optarg; break;
		case 'r': o->reps = parse_count("reps", optarg, 1000); break;
		case 'n': o->passes = parse_count("passes", optarg, 1000); break;
		case 'y': o->ptype = parse_policy(optarg); break;
		case 'c': o->cap_s = parse_count("mmap-cap", optarg, 86400); break;
		case 'u': o->drivers = optarg; break;
		case 'e': o->engines = optarg; break;
		case '1': o->one = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (!o->file[0]) {
		if (mkdir(dir, 0755) && errno != EEXIST)
			die("%s: %s", dir, strerror(errno));
		snprintf(o->file, sizeof(o->file), "%s/passes.data", dir);
	}
}

int main(int argc, char **argv)
{
	struct options o = {
		.size = 2 * GIB,
		.budget = 512 * MIB,
		.reps = 5,
		.passes = 1,
		.cap_s = 15,
		.ptype = UMMAP_PTYPE_S3FIFO,
		.segs = { 64 * KIB, 256 * KIB, MIB, 2 * MIB, 16 * MIB },
		.nsegs = 5,
		.threads = { 1, 2 },
		.nthreads = 2,
		.methods = "ummap,fresh,floor,mmap,inplace,deep",
		.drivers = "-",
		.engines = "segv",
		.patterns = "seq,rand",
		.ops = "read,write",
		.argv = argv,
	};

	parse_options(&o, argc, argv);
	check_options(&o);
	return o.one ? child(&o) : parent(&o);
}
