/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Costs and savings of the filter wal+, compared with the same driver without it, alternately:
 * syncs of a few changed segments, sequential writes with one sync at the end, reads of data that
 * are not in the log, and opening a store with a long log.
 */
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include "kit/data.h"
#include "ummap.h"

static const char help[] =
"usage: wal [OPTION ...]\n"
"Times over wal+ and over the driver behind it; CSV on stdout.\n"
"  --dir DIR        for a file that is kept for the next time, and its log (./cache)\n"
"  --driver DRIVER  behind wal+ (uring)\n"
"  --size SIZE      of the file, and of the log that is opened (1G)\n"
"  --changed N      segments of 4K that are changed before each sync (1000)\n"
"  --only LIST      figures: sync,write,read-seq,read-rand,open\n"
"  --reps N         pairs (5)\n"
"  --help\n";

#define SYNCS 5

struct options {
	const char *dir, *driver, *only;
	size_t size;
	unsigned changed, reps;
};

static char path[PATH_MAX], uri[PATH_MAX + 64];

static void *map(const struct options *o, bool wal, const char *keys, size_t seg, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = seg;
	snprintf(uri, sizeof(uri), "%s%s:%s%s", wal ? "wal+" : "", o->driver, path,
		 wal ? keys : "");
	if (ummap_open(uri, o->size, 0, prot, &attr, &addr))
		die("%s: %s", uri, umerrormsg());
	return addr;
}

static void unmap(void *addr)
{
	if (umunmap(addr, 0))
		die("umunmap: %s", umerrormsg());
}

static void sync_now(void *addr)
{
	if (umsync(addr, 0))
		die("umsync: %s", umerrormsg());
}

static void make_cold(const struct options *o)
{
	int fd = open_file(path, O_RDWR);

	drop_cache(fd, o->size);
	close(fd);
}

static double ms_since(uint64_t start)
{
	return (double)(now_ns() - start) * 1e-6;
}

/* ---- One measurement: milliseconds of the calls, and with the end ---- */

struct took {
	double ms, with_end;
};

static struct took time_syncs(const struct options *o, bool wal, unsigned rep)
{
	size_t segments = o->size / (4 * KIB);
	char *m = map(o, wal, "", 4 * KIB, PROT_READ | PROT_WRITE);
	uint64_t seed = rep + 1, start;
	struct took took = { 0 };

	for (unsigned i = 0; i < SYNCS; i++) {
		/* The first word identifies the file. */
		for (unsigned k = 0; k < o->changed; k++)
			((uint64_t *)(m +
				      (1 + next_random(&seed) % (segments - 1)) * (4 * KIB)))[0]++;
		start = now_ns();
		sync_now(m);
		took.ms += ms_since(start) / SYNCS;
	}
	start = now_ns();
	unmap(m);
	took.with_end = took.ms + ms_since(start) / SYNCS;
	return took;
}

static struct took time_write(const struct options *o, bool wal, unsigned rep)
{
	uint64_t start = now_ns();
	char *m = map(o, wal, "", MIB, PROT_READ | PROT_WRITE);
	struct took took;

	for (size_t off = 0; off < o->size; off += MIB)
		fill_words(m + off, MIB, off, FILE_SALT + rep);
	sync_now(m);
	took.ms = ms_since(start);
	unmap(m);
	took.with_end = ms_since(start);
	return took;
}

static struct took time_read(const struct options *o, bool wal, unsigned rep, bool random)
{
	size_t seg = random ? 64 * KIB : MIB, n = o->size / seg;
	char *m = map(o, wal, "", seg, PROT_READ | PROT_WRITE);
	uint32_t *order = calloc(n, sizeof(*order));
	struct took took;
	uint64_t start, sum = 0;

	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	if (random)
		shuffle(order, n, rep);
	make_cold(o);
	start = now_ns();
	for (size_t i = 0; i < n; i++)
		sum += sum_words(m + order[i] * seg, seg);
	took.ms = took.with_end = ms_since(start);
	if (!sum)
		die("the file has nothing but zeros");
	unmap(m);
	free(order);
	return took;
}

/* Leaves a log of the whole file by killing a process. Kept commits stay in the log. */
static void leave_log(const struct options *o)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child < 0)
		die("fork: %s", strerror(errno));
	if (child == 0) {
		char *m = map(o, true, "?wal.keep=2", MIB, PROT_READ | PROT_WRITE);

		for (size_t off = 0; off < o->size; off += MIB)
			fill_words(m + off, MIB, off, FILE_SALT);
		sync_now(m);
		kill(getpid(), SIGKILL);
	}
	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
		die("the process that leaves a log has failed");
}

/* Opens the store with a cold page cache, and then with the log in the page cache. */
static struct took time_open(const struct options *o)
{
	char log[PATH_MAX + 8];
	struct took took;
	uint64_t start;
	int fd;

	leave_log(o);
	snprintf(log, sizeof(log), "%s.wal", path);
	fd = open_file(log, O_RDONLY);
	drop_cache(fd, o->size);
	close(fd);
	for (int warm = 0; warm < 2; warm++) {
		void *m;

		start = now_ns();
		m = map(o, true, "?wal.keep=2", MIB, warm ? PROT_READ | PROT_WRITE : PROT_READ);
		*(warm ? &took.with_end : &took.ms) = ms_since(start);
		unmap(m);
	}
	/* All data are written to the store. */
	unmap(map(o, true, "?wal.keep=1", MIB, PROT_READ | PROT_WRITE));
	return took;
}

/* ---- Pairs ---- */

static struct took time_one(const struct options *o, const char *what, bool wal, unsigned rep)
{
	if (!strcmp(what, "sync"))
		return time_syncs(o, wal, rep);
	if (!strcmp(what, "write"))
		return time_write(o, wal, rep);
	return time_read(o, wal, rep, !strcmp(what, "read-rand"));
}

static void take_turns(const struct options *o, const char *what, unsigned rep)
{
	struct took took[2];

	if (!strcmp(what, "open")) {
		took[0] = time_open(o);
		printf("%u,open,cold,,%.1f,\n%u,open,cached,,%.1f,\n", rep, took[0].ms, rep,
		       took[0].with_end);
		fflush(stdout);
		return;
	}
	for (unsigned i = 0; i < 2; i++)
		took[(rep + i) % 2] = time_one(o, what, (rep + i) % 2, rep);
	printf("%u,%s,call,%.2f,%.2f,%.3f\n", rep, what, took[0].ms, took[1].ms,
	       took[0].ms / took[1].ms);
	if (took[0].with_end != took[0].ms)
		printf("%u,%s,end,%.2f,%.2f,%.3f\n", rep, what, took[0].with_end, took[1].with_end,
		       took[0].with_end / took[1].with_end);
	fflush(stdout);
}

static bool is_wanted(const struct options *o, const char *what)
{
	size_t len = strlen(what);
	const char *at = o->only;

	while (at && (strncmp(at, what, len) != 0 || (at[len] && at[len] != ','))) {
		at = strchr(at, ',');
		at += at != NULL;
	}
	return at;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", 1, 0, 'd' },     { "driver", 1, 0, 'u' }, { "size", 1, 0, 's' },
		{ "changed", 1, 0, 'c' }, { "only", 1, 0, 'o' },   { "reps", 1, 0, 'r' },
		{ "help", 0, 0, 'h' },    { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 'u': o->driver = optarg; break;
		case 's': o->size = parse_size("size", optarg); break;
		case 'c': o->changed = parse_count("changed", optarg, 1000000); break;
		case 'o': o->only = optarg; break;
		case 'r': o->reps = parse_count("reps", optarg, 1000); break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (o->size % MIB || o->size < 16 * MIB)
		die("--size must be a multiple of 1M, and 16M at least");
}

int main(int argc, char **argv)
{
	static const char *const figures[] = { "sync", "write", "read-seq", "read-rand", "open" };
	struct options o = {
		.dir = "./cache", .driver = "uring", .size = GIB, .changed = 1000, .reps = 5,
		.only = "sync,write,read-seq,read-rand,open",
	};
	char bytes[32];

	parse_options(&o, argc, argv);
	if (mkdir(o.dir, 0755) && errno != EEXIST)
		die("%s: %s", o.dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/wal.data", o.dir);
	make_file(path, o.size);
	snprintf(bytes, sizeof(bytes), "%zu", o.size / 4);
	setenv("UMMAP_MEM_LIMIT", bytes, 1);
	puts("rep,figure,until,plain_ms,wal_ms,ratio");
	for (unsigned rep = 1; rep <= o.reps; rep++) {
		for (size_t i = 0; i < sizeof(figures) / sizeof(*figures); i++) {
			if (is_wanted(&o, figures[i]))
				take_turns(&o, figures[i], rep);
		}
	}
	return 0;
}
