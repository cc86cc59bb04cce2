/* SPDX-License-Identifier: BSD-3-Clause */
/* Traces of mappings: a line for each request, a file for each handle, full disks. */
#include <criterion/criterion.h>

#include "trace.h"

#include <sched.h>
#include <sys/mount.h>

#define THREADS 4

Test(trace, has_a_line_for_each_request)
{
	const char *csv = in_dir("t.csv");
	struct umstat st;
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri(SPAN, READ_WRITE, "trace+mem:8M?trace.file=%s", csv);
	/* Nothing is read in the background after the counters have been taken. */
	check(umadvise(m, SPAN, UMMAP_ADV_RANDOM) == 0);
	fill(m, SPAN, 0, 1);
	check_bytes(m, SPAN, 0, 1);
	check(umsync(m, 1) == 0);
	check_bytes(m, SEG, 0, 1);
	check(umsync(m, 0) == 0);
	st = stat_of(m);
	check(umunmap(m, 0) == 0);
	read_trace(csv);
	check(!trace.says_lost);
	check(count_lines("read", 0) == st.read_requests, "%" PRIu64, st.read_requests);
	check(count_lines("write", 0) == st.write_requests, "%" PRIu64, st.write_requests);
	check(count_lines("flush", 0) == st.flushes && st.flushes > 0, "%" PRIu64, st.flushes);
	check(count_bytes("read") == st.read_bytes && count_bytes("write") == st.write_bytes);
}

Test(trace, says_when_and_who)
{
	const char *csv = in_dir("t.csv");
	double begin = now(), took;
	uint64_t last = 0;
	size_t mine = 0;
	uint8_t *m;

	set_env("UMMAP_ENGINE", "segv"); /* handles a fault on its own thread */
	m = map_uri(SPAN, READ_WRITE,
		    "trace+error+mem:8M?trace.file=%s&error.delay=20000&error.nth=999999", csv);
	check(umadvise(m, SPAN, UMMAP_ADV_RANDOM) == 0);
	for (int i = 0; i < 5; i++)
		check(m[i * SEG] == 0);
	took = (now() - begin) * 1e9;
	check(umunmap(m, 0) == 0);
	read_trace(csv);
	check(count_lines("read", 0) == 5);
	for (size_t i = 0; i < trace.n; i++) {
		struct line *l = &trace.line[i];

		if (strcmp(l->op, "read") != 0)
			continue;
		check(l->start >= last && l->start + l->took < took, "%" PRIu64, l->start);
		check(l->took >= 20000000 && l->took < took, "%" PRIu64, l->took);
		check(l->off % SEG == 0 && l->len == SEG);
		last = l->start + l->took;
		mine += l->thread == gettid();
	}
	check(mine == 5);
}

/* Every third write fails. The lines have the error, and the mapping behaves as without a trace. */
Test(trace, over_fault_and_posix)
{
	const char *csv = in_dir("t.csv"), *data = in_dir("data");
	struct umstat st;
	uint8_t *m;
	int fd;

	set_budget(BUDGET);
	m = map_uri(SPAN, READ_WRITE,
		    "trace+error+posix:%s?trace.file=%s&error.op=write&error.nth=3&error.times=4&"
		    "error.errno=EDQUOT",
		    data, csv);
	check(umadvise(m, SPAN, UMMAP_ADV_RANDOM) == 0);
	fill(m, SPAN, 0, 1);
	while (umsync(m, 0) == -1)
		check(errno == EDQUOT);
	check_bytes(m, SPAN, 0, 1);
	st = stat_of(m);
	check(umunmap(m, 1) == 0);
	read_trace(csv);
	check(count_lines("write", -EDQUOT) == 4);
	check(count_lines("write", 0) == st.write_requests - 4);
	check(count_lines("read", 0) == st.read_requests);
	check(count_lines("size", 0) > 0);
	fd = open(data, O_RDONLY);
	check_file(fd, 0, SPAN, 0, 1);
	close(fd);
}

/* The filter error before the trace: requests that it fails never reach the trace. */
Test(trace, under_a_fault)
{
	const char *csv = in_dir("t.csv");
	uint8_t *m =
		map_uri(SEG, READ_WRITE, "error+trace+mem:1M?trace.file=%s&error.op=write", csv);

	fill(m, SEG, 0, 1);
	check_fails(umsync(m, 0), EIO);
	check(umsync(m, 0) == 0);
	check(umunmap(m, 0) == 0);
	read_trace(csv);
	check(count_lines("write", 0) == 1 && count_lines("write", -EIO) == 0);
}

Test(trace, of_a_descriptor)
{
	const char *csv = in_dir("t.csv");
	char driver[400];
	int fd = temp_file(0);
	uint8_t *m;

	snprintf(driver, sizeof(driver), "trace+posix:?trace.file=%s", csv);
	set_env("UMMAP_DRIVER", driver);
	m = map_file(fd, SPAN, SEG, READ_WRITE, 0);
	fill(m, SPAN, 0, 1);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SPAN, 0, 1);
	close(fd);
	read_trace(csv);
	check(count_bytes("write") >= SPAN - 16 * KIB); /* zeros at the end need not be written */
}

static void *fill_part(void *part)
{
	fill(part, SPAN / THREADS, 0, 1);
	return NULL;
}

Test(trace, of_many_threads)
{
	const char *csv = in_dir("t.csv");
	pthread_t threads[THREADS];
	struct umstat st;
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri(SPAN, READ_WRITE, "trace+null:1T?trace.file=%s", csv);
	for (int i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, fill_part, m + i * (SPAN / THREADS)) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	check(umsync(m, 1) == 0);
	st = stat_of(m);
	check(umunmap(m, 0) == 0);
	read_trace(csv);
	check(count_lines("read", 0) == st.read_requests);
	check(count_lines("write", 0) == st.write_requests);
}

/* ---- The file ---- */

Test(trace, is_in_the_file_after_a_sync)
{
	const char *csv = in_dir("t.csv");
	uint8_t *m = map_uri(SPAN, READ_WRITE, "trace+mem:8M?trace.file=%s", csv);

	fill(m, SEG, 0, 1);
	check(umsync(m, 0) == 0);
	read_trace(csv);
	check(count_lines("write", 0) == 1 && count_lines("flush", 0) == 1);
	fill(m + SEG, SEG, 0, 1);
	check(umunmap(m, 1) == 0);
	read_trace(csv);
	check(count_lines("write", 0) == 2 && count_lines("flush", 0) == 2);
}

Test(trace, overwrites_nothing)
{
	const char *csv = in_dir("t.csv");
	struct stat st;
	uint8_t *m[3];

	for (int i = 0; i < 3; i++)
		m[i] = map_uri(SPAN, PROT_READ, "trace+mem:8M?trace.file=%s", csv);
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k <= i; k++)
			check(m[i][k * 8 * SEG] == 0);
		check(umunmap(m[i], 0) == 0);
	}
	read_trace(csv);
	check(count_lines("read", 0) >= 1);
	for (size_t i = 0; i < trace.n; i++)
		check(trace.line[i].off < 8 * SEG);
	read_trace(in_dir("t.csv.3"));
	check(count_lines("read", 0) >= 3);
	check(stat(in_dir("t.csv.2"), &st) == 0 && stat(in_dir("t.csv.4"), &st) != 0);
}

Test(trace, refuses_with_a_sentence)
{
	static const char *const bad[] = {
		"trace+mem:1M",
		"trace+mem:1M?trace.file=",
		"trace:/x?trace.file=/dev/null",
		"trace+mem:1M?trace.fil=x",
		"trace+mem:1M?file=x",
		"trace+mem:1M?trace.file=/nowhere/at/all",
		"trace+mem:1M?trace.file=/",
		"trace+mem:nonsense?trace.file=/dev/null",
	};
	void *addr;
	int fds;

	check_fails(ummap_open(bad[0], MIB, 0, PROT_READ, NULL, &addr), EINVAL);
	fds = count_fds();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		check_fails(ummap_open(bad[i], MIB, 0, PROT_READ, NULL, &addr), EINVAL);
		check(i > 1 || strstr(umerrormsg(), "trace.file=PATH"), "%s", umerrormsg());
		check(i != 5 || strstr(umerrormsg(), "/nowhere/at/all"), "%s", umerrormsg());
	}
	check_fails(ummap_open("trace+posix:/nowhere?trace.file=/dev/null", MIB, 0, PROT_READ, NULL,
			       &addr),
		    ENOENT);
	check(count_fds() == fds);
}

static void end_without_unmapping(void *m)
{
	check(umsync(m, 0) == -1 && errno == EINVAL);
	exit(0);
}

/* A forked child must not write lines that its parent has collected. */
Test(trace, a_child_writes_nothing_of_its_parents)
{
	const char *csv = in_dir("t.csv");
	uint8_t *m = map_uri(SPAN, READ_WRITE, "trace+mem:8M?trace.file=%s", csv);
	struct umstat st;

	fill(m, SPAN, 0, 1);
	check_exits(run_child(end_without_unmapping, m), 0);
	st = stat_of(m);
	check(umunmap(m, 0) == 0);
	read_trace(csv);
	check(count_lines("read", 0) == st.read_requests);
}

/* ---- Full disks ---- */

/* Makes more lines than the block holds, and checks the data. */
static void many_requests(const char *csv, struct umstat *st)
{
	uint8_t *m = map_uri(4 * MIB, READ_WRITE, "trace+mem:4M?trace.file=%s", csv);

	for (int round = 0; round < 60; round++) {
		fill(m, 4 * MIB, 0, round);
		check(umsync(m, 1) == 0);
		check_bytes(m, 4 * MIB, 0, round);
	}
	*st = stat_of(m);
	check(umunmap(m, 1) == 0);
}

Test(trace, a_device_that_is_always_full)
{
	struct umstat st;

	set_env("UMMAP_BULK_SYNC", "false");
	many_requests("/dev/full", &st);
	check(st.read_errors == 0 && st.write_errors == 0);
}

static void check_all_counted(const char *csv, const struct umstat *st, const char *why)
{
	size_t kept;

	read_trace(csv);
	kept = trace.n - count_lines("size", 0);
	check(trace.says_lost && strcmp(trace.why, why) == 0, "\"%s\"", trace.why);
	check(trace.n > 20 && trace.lost > 20, "%zu + %zu", trace.n, trace.lost);
	/* Lost lines may include those of the call `size`, which the library does not count. */
	check(kept < st->read_requests + st->write_requests + st->flushes);
	check(kept + trace.lost >= st->read_requests + st->write_requests + st->flushes);
}

static void with_a_limited_file(void *csv)
{
	struct umstat st;

	set_env("UMMAP_BULK_SYNC", "false");
	signal(SIGXFSZ, SIG_IGN);
	check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 100000, 100000 }) == 0);
	many_requests(csv, &st);
	check_all_counted(csv, &st, strerror(EFBIG));
}

Test(trace, a_file_that_may_not_grow)
{
	check_exits(run_child(with_a_limited_file, (void *)in_dir("t.csv")), 0);
}

/* A path in a new file system of that size, which only this process sees. */
static const char *on_small_disk(const char *size)
{
	const char *dir = in_dir("small");

	check(unshare(CLONE_NEWNS) == 0);
	check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	check(mount("none", dir, "tmpfs", 0, size) == 0);
	return in_dir("small/t.csv");
}

static void with_a_small_disk(void *unused)
{
	const char *csv = on_small_disk("size=100k");
	struct umstat st;

	(void)unused;
	set_env("UMMAP_BULK_SYNC", "false");
	many_requests(csv, &st);
	check_all_counted(csv, &st, strerror(ENOSPC));
}

/* Writes lines one by one until there is only room for the last line. */
static void with_a_tiny_disk(void *unused)
{
	const char *csv = on_small_disk("size=4k");
	struct umstat st;
	uint8_t *m = map_uri(SEG, READ_WRITE, "trace+mem:64K?trace.file=%s", csv);

	(void)unused;
	for (int i = 0; i < 200; i++) {
		m[0]++;
		check(umsync(m, 0) == 0);
	}
	st = stat_of(m);
	check(umunmap(m, 1) == 0);
	check_all_counted(csv, &st, strerror(ENOSPC));
}

Test(trace, a_disk_that_fills_up)
{
	if (geteuid() != 0)
		cr_skip_test("needs root");
	check(mkdir(in_dir("small"), 0700) == 0);
	check_exits(run_child(with_a_small_disk, NULL), 0);
	/* Any number of bytes may be free in the last page. */
	for (int i = 0; i < 12; i++)
		check_exits(run_child(with_a_tiny_disk, NULL), 0);
}
