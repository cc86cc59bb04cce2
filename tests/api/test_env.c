/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the effect of each environment variable, and the messages for invalid values. The library
 * reads the variables once, at the first mapping, so each case runs in a child of a process that
 * never maps.
 */
#include <criterion/criterion.h>
#include <glob.h>
#include <sys/sysinfo.h>

#include "common.h"

#define SEG (64 * KIB)
#define SIZE (256 * SEG)

struct setting {
	const char *name, *value;
};

static void is_taken(void *arg)
{
	const struct setting *s = arg;
	uint8_t *m;

	set_env(s->name, s->value);
	m = map_file(temp_file(4 * SEG), 4 * SEG, 0, READ_WRITE, 0);
	m[1] = 1;
	check(umunmap(m, 1) == 0, "%s=%s", s->name, s->value);
	exit(0); /* the exit handlers remove the files of memory groups */
}

static void is_refused(void *arg)
{
	const struct setting *s = arg;
	int fd = temp_file(4 * SEG), fds = count_fds();
	char is[200], cannot[200];
	void *addr;

	set_env(s->name, s->value);
	errno = 0;
	check(ummap(4 * SEG, 0, READ_WRITE, fd, 0, -1, 1, 0, &addr) == -1 && errno == EINVAL,
	      "%s=%s", s->name, s->value);
	snprintf(is, sizeof(is), "%s is \"%s\"", s->name, s->value);
	snprintf(cannot, sizeof(cannot), "cannot use %s='%s'", s->name, s->value);
	check(strncmp(umerrormsg(), is, strlen(is)) == 0 ||
		      strncmp(umerrormsg(), cannot, strlen(cannot)) == 0,
	      "%s=%s: the message begins so: %s", s->name, s->value, umerrormsg());
	check(count_fds() == fds);
}

static void report(int status, const char *name, const char *value)
{
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s=%s: status %#x", name, value,
	      status);
}

static void take_all(const char *name, const char *const values[])
{
	for (; *values; values++)
		report(run_child(is_taken, &(struct setting){ name, *values }), name, *values);
}

static void refuse_all(const char *name, const char *const values[])
{
	for (; *values; values++)
		report(run_child(is_refused, &(struct setting){ name, *values }), name, *values);
}

#define VALUES(...) (const char *const[]){ __VA_ARGS__, NULL }

Test(env, good_values_are_taken)
{
	take_all("UMMAP_MEM_LIMIT", VALUES("512M", "1G", "50%", "12.5 %", "100%", ".5%",
					   "536870912", "16K", "512MB", "512MiB", "0.5G", "1 G"));
	take_all("UMMAP_MEMCONFIG", VALUES("static", "dynamic"));
	take_all("UMMAP_GROUP", VALUES("a", "test_env.7-A", "abcdefghijklmnopqrstuvwxyz01234"));
	take_all("UMMAP_BULK_SYNC", VALUES("true", "false"));
	take_all("UMMAP_SEG_SIZE", VALUES("64K", "2M", "65536", "64KB", "64Kb", "0.5 MiB", "auto"));
	take_all("UMMAP_DRIVER", VALUES("posix", "posix:", "error+posix:?error.nth=1000000"));
	take_all("UMMAP_DIRECT", VALUES("auto", "always", "never"));
	take_all("UMMAP_CACHED", VALUES("copy", "map"));
	take_all("UMMAP_LOCK", VALUES("yes", "no"));
	take_all("UMMAP_READAHEAD", VALUES("0", "4M", "1048576", "4MiB"));
	take_all("UMMAP_DRIVER_PATH", VALUES("/tmp", "/usr/lib:/tmp", "/"));
	take_all("UMMAP_LOG", VALUES("error", "warn", "info", "debug", "start:debug,io:info",
				     "warn,sigsegv:debug,flusher:error"));
	take_all("UMMAP_STATS", VALUES("1", "/dev/null", "/tmp/../dev/null"));
}

Test(env, bad_values_are_refused)
{
	refuse_all("UMMAP_MEM_LIMIT",
		   VALUES("abc", "0", "-1", "512X", "512MM", "0%", "101%", "%", "1 G G", "512MBB",
			  "99999999999999999999G", "20000000T", "1", "16383", "500T", "0.0000001%",
			  "nan%", "-1%", "0.5"));
	refuse_all("UMMAP_MEMCONFIG", VALUES("", "Static", "dynamic "));
	refuse_all("UMMAP_GROUP",
		   VALUES("", "a b", "../a", "a/b", "abcdefghijklmnopqrstuvwxyz012345"));
	refuse_all("UMMAP_BULK_SYNC", VALUES("maybe", "truely"));
	refuse_all("UMMAP_SEG_SIZE",
		   VALUES("abc", "3000", "1000", "2K", "-64K", "64Ki", "512G", "8192T"));
	refuse_all("UMMAP_DRIVER", VALUES("nonsense", "error+nonsense", "posix:?nonsense=1",
					  "error", "posix:/tmp/file",
					  "error+posix:file?error.nth=3", "mem:1M", "/tmp/file"));
	refuse_all("UMMAP_DIRECT", VALUES("sometimes", "1"));
	refuse_all("UMMAP_CACHED", VALUES("", "maps", "1"));
	refuse_all("UMMAP_LOCK", VALUES("", "none", "0"));
	refuse_all("UMMAP_READAHEAD", VALUES("abc", "-1", "1X"));
	refuse_all("UMMAP_DRIVER_PATH",
		   VALUES("", ":", "/tmp:", ":/tmp", "/tmp::/usr", ".", "/tmp:..", "/tmp:tests",
			  "/nowhere/at/all", "/tmp:/nowhere", "/dev/null"));
	refuse_all("UMMAP_LOG", VALUES("loud", "start:loud", "debug,,", "start:", "debug,foo:info",
				       "star:info", "start,io:info", ":info", "start, io:info"));
	refuse_all("UMMAP_STATS", VALUES("", "true", "yes", "on", "0", "2", "stats.json", "/tmp/",
					 "/nowhere/at/all/stats.json", "/dev/null/stats.json"));
}

static void is_refused_beside(void *arg)
{
	set_env("UMMAP_MEM_LIMIT", "4M");
	is_refused(arg);
}

/* The limit must hold four segments. */
Test(env, segments_fit_the_limit)
{
	struct setting s = { "UMMAP_SEG_SIZE", "2M" };

	report(run_child(is_refused_beside, &s), s.name, s.value);
}

static void too_large_segment(void *unused)
{
	size_t huge = 4 * KIB;
	struct sysinfo info;
	void *addr;

	(void)unused;
	check(sysinfo(&info) == 0);
	while (huge <= info.totalram / 4 * info.mem_unit)
		huge *= 2;
	check_fails(ummap(2 * huge, huge, READ_WRITE, temp_file(4 * SEG), 0, -1, 1, 0, &addr),
		    ENOMEM);
}

Test(env, segments_fit_the_machine)
{
	check_exits(run_child(too_large_segment, NULL), 0);
}

static void change_later(void *unused)
{
	int fd = temp_file(4 * SEG);
	uint8_t *m = map_file(fd, 4 * SEG, 0, READ_WRITE, 0);

	(void)unused;
	set_env("UMMAP_SEG_SIZE", "nonsense");
	set_env("UMMAP_DRIVER", "nonsense");
	check(umunmap(map_file(fd, 4 * SEG, 0, PROT_READ, 0), 0) == 0);
	check(umunmap(m, 0) == 0);
}

Test(env, is_read_once)
{
	check_exits(run_child(change_later, NULL), 0);
}
/* ---- Budgets. Other processes of this user may have their shares, so only upper bounds hold. ----
 * */

struct limit {
	const char *name, *value;
	double share;     /* part of RAM; 0: `bytes` counts */
	uint64_t bytes;
};

static void has_budget(void *arg)
{
	struct limit *l = arg;
	struct sysinfo info;
	uint64_t budget;

	check(sysinfo(&info) == 0);
	if (l->bytes == 0)
		l->bytes = l->share * ((double)info.totalram * info.mem_unit) + 1;
	set_env(l->name, l->value);
	check(umunmap(map_file(temp_file(SEG), SEG, 0, READ_WRITE, 0), 0) == 0);
	budget = stat_of(NULL).budget_bytes;
	check(budget > 0 && budget <= l->bytes, "%s=%s: %" PRIu64, l->name, l->value, budget);
}

Test(env, limits_the_budget)
{
	struct limit limits[] = {
		{ "UMMAP_MEM_LIMIT", "512M", 0, 512 * MIB }, { "UMMAP_MEM_LIMIT", "1G", 0, GIB },
		{ "UMMAP_MEM_LIMIT", "50%", 0.5, 0 }, { "UMMAP_MEM_LIMIT", "25%", 0.25, 0 },
		{ "UMMAP_MEM_LIMIT", "0.1%", 0.001, 0 },
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		check_exits(run_child(has_budget, &limits[i]), 0);
}

/* ---- Effects of other variables ---- */

static void sync_16_neighbours(void *value)
{
	uint8_t *m;

	set_env("UMMAP_BULK_SYNC", value);
	m = map_file(temp_file(SIZE), SIZE, SEG, READ_WRITE, 0);
	for (size_t i = 0; i < 16; i++)
		m[i * SEG] = 1;
	check(umsync(m, 0) == 0);
	check(stat_of(m).write_bytes == 16 * SEG);
	if (strcmp(value, "false") == 0)
		check(stat_of(m).write_requests == 16, "%" PRIu64, stat_of(m).write_requests);
	else
		check(stat_of(m).write_requests < 16, "%" PRIu64, stat_of(m).write_requests);
}

Test(env, bulk_sync_joins_neighbours)
{
	check_exits(run_child(sync_16_neighbours, "true"), 0);
	check_exits(run_child(sync_16_neighbours, "false"), 0);
}

static void default_segment(void *unused)
{
	int fd = temp_file(SIZE);
	uint8_t *m, *explicit;

	(void)unused;
	set_env("UMMAP_SEG_SIZE", "128K");
	m = map_file(fd, SIZE, 0, READ_WRITE, 0);
	m[5] = 1;
	check(stat_of(m).dirty_bytes == 128 * KIB);
	explicit = map_file(fd, SIZE, SEG, READ_WRITE, SIZE);
	explicit[5] = 1;
	check(stat_of(explicit).dirty_bytes == SEG);
}

static void default_default_segment(void *unused)
{
	uint8_t *m = map_file(temp_file(SIZE), SIZE, 0, READ_WRITE, 0);

	(void)unused;
	m[5] = 1;
	check(stat_of(m).dirty_bytes == 2 * MIB);
}

Test(env, seg_size_is_the_default)
{
	check_exits(run_child(default_segment, NULL), 0);
	check_exits(run_child(default_default_segment, NULL), 0);
}

static void read_through_bad_driver(void *unused)
{
	uint8_t *m;

	(void)unused;
	set_env("UMMAP_DRIVER", "error+posix:?error.op=read&error.nth=1&error.errno=EIO");
	m = map_file(temp_file(SIZE), SIZE, SEG, READ_WRITE, 0);
	(void)*(volatile uint8_t *)m;
}

Test(env, driver_is_used_for_descriptors)
{
	check_killed(run_child(read_through_bad_driver, NULL), SIGBUS);
}

static void read_in_order(void *value)
{
	int fd = temp_file(0);
	uint8_t *m;

	set_env("UMMAP_READAHEAD", value);
	set_env("UMMAP_CACHED", "copy");
	file_fill(fd, 0, SIZE, 0, 1);
	m = map_file(fd, SIZE, SEG, PROT_READ, 0);
	check_bytes(m, SIZE, 0, 1);
	if (strcmp(value, "0") == 0)
		check(stat_of(m).readahead_loads == 0 && stat_of(m).read_faults == SIZE / SEG);
	else
		check(stat_of(m).readahead_loads > 0 && stat_of(m).readahead_hits > 0);
	check(stat_of(m).read_bytes <= SIZE, "no segment is read twice");
}

Test(env, readahead_has_a_window)
{
	check_exits(run_child(read_in_order, "0"), 0);
	check_exits(run_child(read_in_order, "2M"), 0);
}

/* ---- Output ---- */

struct printer {
	const char *name, *value;
	int to;  /* descriptor for standard error */
};

/* Ends by exit(), not _exit(), because exit handlers print the counters. */
static void map_and_exit(void *arg)
{
	struct printer *p = arg;
	uint8_t *m;

	check(dup2(p->to, STDERR_FILENO) >= 0 && dup2(p->to, STDOUT_FILENO) >= 0);
	unsetenv("UMMAP_LOG");
	unsetenv("UMMAP_STATS");
	if (p->name)
		set_env(p->name, p->value);
	m = map_file(temp_file(SIZE), SIZE, SEG, READ_WRITE, 0);
	for (size_t i = 0; i < 16; i++)
		m[i * SEG] = 1;
	check(umunmap(m, 1) == 0);
	exit(0);
}

/* Returns all output of a child with this setting. */
static void printed(const char *name, const char *value, char text[static 64 * 1024])
{
	struct printer p = { name, value, temp_file(0) };
	ssize_t len;

	check_exits(run_child(map_and_exit, &p), 0);
	len = pread(p.to, text, 64 * 1024 - 1, 0);
	check(len >= 0);
	text[len] = 0;
	close(p.to);
}

Test(env, log_has_levels)
{
	char text[64 * 1024];
	size_t all;

	printed(NULL, NULL, text);
	check(text[0] == 0, "a correct program logs nothing: %s", text);
	printed("UMMAP_LOG", "error", text);
	check(text[0] == 0, "%s", text);
	printed("UMMAP_LOG", "debug", text);
	all = strlen(text);
	check(all > 0);
	printed("UMMAP_LOG", "io:debug", text);
	check(strlen(text) < all, "one part of the library writes less than all parts");
}

Test(env, warnings_are_on_by_default)
{
	char text[64 * 1024];

	printed("UMMAP_MEM_LIMIT", "16K", text);
	check(strstr(text, " warn start: "), "%s", text);
}

/* The only line of output has `name`, and `meant` as the suggestion. */
static void warned(const char *name, const char *value, const char *meant)
{
	char text[64 * 1024], end[64];

	printed(name, value, text);
	check(strstr(text, " warn config: ") && strstr(text, name), "%s: \"%s\"", name, text);
	check(strchr(text, '\n') + 1 == strchr(text, 0), "one line: %s", text);
	snprintf(end, sizeof(end), "; did you mean %s?\n", meant);
	check(meant ? !!strstr(text, end) : !strstr(text, "mean"), "%s: \"%s\"", name, text);
}

Test(env, unknown_names_are_warned_of)
{
	warned("UMMAP_MEMLIMIT", "1G", "UMMAP_MEM_LIMIT");
	warned("UMMAP_LIMIT", "1G", "UMMAP_MEM_LIMIT");
	warned("UMMAP_SEGSIZE", "64K", "UMMAP_SEG_SIZE");
	warned("UMMAP_MEM_CONFIG", "static", "UMMAP_MEMCONFIG");
	warned("UMMAP_DRIVERS", "posix", "UMMAP_DRIVER");
	warned("UMMAP_MPI_LOCL", "false", "UMMAP_MPI_LOCAL");
	warned("UMMAP_SIGEVICT", "40", NULL);
	warned("UMMAP_MEM_FACTOR", "0.5", NULL);
	warned("UMMAP_WITHOUT_ANY_LIKENESS_TO_ANOTHER_ONE_AND_TOO_LONG_BY_FAR", "", NULL);
	warned("UMMAP_", "1", NULL);
}

Test(env, names_of_others_are_not)
{
	static const char *const names[] = {
		"UMMAP_MPI_ALL",           "UMMAP_MPI_LOCAL",   "UMMAP_TEST_FOLDER",
		"UMMAP_BENCH_DIR",         "UMMAP_STRESS_SEED", "UMMAP_DEMO_CACHE",
		"UMMAP_TEST_IOCACHE_NEAR", "UMMAPPED",          "XUMMAP_LOGS"
	};
	char text[64 * 1024];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		printed(names[i], "1", text);
		check(text[0] == 0, "%s: %s", names[i], text);
	}
}

/* Whether the text is a JSON object of names and whole numbers. Finds missing quotes and commas. */
static bool is_flat_json(const char *p)
{
	p += strspn(p, " \n\t");
	if (*p++ != '{')
		return false;
	for (;;) {
		p += strspn(p, " \n\t");
		if (*p++ != '"')
			return false;
		p += strspn(p, "abcdefghijklmnopqrstuvwxyz_0123456789");
		if (*p++ != '"')
			return false;
		p += strspn(p, " \n\t");
		if (*p++ != ':')
			return false;
		p += strspn(p, " \n\t");
		if (strspn(p, "0123456789") == 0)
			return false;
		p += strspn(p, "0123456789");
		p += strspn(p, " \n\t");
		if (*p != ',')
			break;
		p++;
	}
	return *p++ == '}' && p[strspn(p, " \n\t")] == 0;
}

Test(env, stats_come_at_exit)
{
	char text[64 * 1024], path[320];
	const char *at;
	int fd;

	printed("UMMAP_STATS", "1", text);
	check(strstr(text, "write_faults") && strstr(text, "16"), "%s", text);
	fd = temp_named("stats.json", 0, path);
	printed("UMMAP_STATS", path, text);
	check(text[0] == 0, "%s", text);
	close(fd);
	fd = open(path, O_RDONLY);
	check(read(fd, text, sizeof(text) - 1) > 0);
	text[file_size(fd)] = 0;
	check(is_flat_json(text), "%s", text);
	at = strstr(text, "\"write_faults\"");
	check(at && strtoul(strchr(at, ':') + 1, NULL, 10) == 16, "%s", text);
	check(strstr(text, "\"read_bytes\"") && strstr(text, "\"evictions\""), "%s", text);
	close(fd);
}

static size_t objects_of(const char *group)
{
	char pattern[100];
	size_t count;
	glob_t found;

	snprintf(pattern, sizeof(pattern), "/dev/shm/ummap-*-%s", group);
	glob(pattern, 0, NULL, &found);
	count = found.gl_pathc;
	globfree(&found);
	return count;
}

static void maps_in_another_group_than(void *arg)
{
	uint8_t *m = map_file(temp_file(SEG), SEG, SEG, READ_WRITE, 0);

	m[1] = 1;
	check(objects_of(arg) == 0, "%s", (const char *)arg);
	check(umunmap(m, 0) == 0);
	exit(0);
}

/* A program may free or overwrite its environment later. */
static void changes_the_text(void *arg)
{
	static char text[60];
	uint8_t *m;

	(void)arg;
	snprintf(text, sizeof(text), "UMMAP_GROUP=test.env.%d", (int)getpid());
	check(putenv(text) == 0);
	m = map_file(temp_file(SEG), SEG, SEG, READ_WRITE, 0);
	m[1] = 1;
	memset(strchr(text, '=') + 1, 'x', 8);
	check_exits(run_child(maps_in_another_group_than, strchr(text, '=') + 1), 0);
	check(umunmap(m, 0) == 0);
	exit(0);
}

Test(env, stays_as_it_was_read)
{
	check_exits(run_child(changes_the_text, NULL), 0);
}
