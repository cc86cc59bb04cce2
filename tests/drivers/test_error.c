/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter error over a driver that counts its calls. */
#include "probe_driver.h"
#include "ummap.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const struct ummap_driver ummap_driver_error;
static const struct ummap_driver *const filter = &ummap_driver_error;

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* ---- Opening the filter ---- */

static int open_over(const struct ummap_driver *next, const char *keys, int fd, void **h,
		     struct ummap_geom *geom)
{
	struct ummap_key list[8];
	struct ummap_uri next_uri = { .scheme = "probe", .path = "/there" };
	struct ummap_uri uri = { "error", "/there", list, 0, next, next ? &next_uri : NULL };
	char *copy = strdup(keys), *rest = copy, *key;
	int err;

	while ((key = strsep(&rest, "&")) && *key) {
		char *value = strchr(key, '=');

		*value++ = '\0';
		list[uri.nkeys++] = (struct ummap_key){ key, value };
	}
	memset(geom, 0, sizeof(*geom));
	err = fd < 0 ? filter->open(&uri, UMMAP_O_WRITE, h, geom) :
		       filter->open_fd(&uri, fd, UMMAP_O_WRITE, h, geom);
	free(copy);
	return err;
}

static void *must_open(const struct ummap_driver *next, const char *keys)
{
	struct ummap_geom geom;
	void *h = NULL;
	int err = open_over(next, keys, -1, &h, &geom);

	cr_assert_eq(err, 0, "\"%s\": %s (%s)", keys, strerror(-err), geom.why);
	return h;
}

static int call(void *h, char what)
{
	char buf[8] = "";
	struct iovec iov[2] = { { buf, 4 }, { buf + 4, 4 } };

	switch (what) {
	case 'r':
		return filter->read(h, buf, sizeof(buf), 0);
	case 'w':
		return filter->write(h, buf, sizeof(buf), 0);
	case 'R':
		return filter->readv(h, iov, 2, 0);
	case 'W':
		return filter->writev(h, iov, 2, 0);
	default:
		return filter->flush(h, 3, 4);
	}
}

static const struct {
	const char *keys, *calls;
	const char *results; /* '.' for success, 'E' for failure */
} runs[] = {
	{ "", "rwfRW", "E...." },
	{ "nth=2", "rwfRW", ".E..." },
	{ "nth=5", "rwfRW", "....E" },
	{ "nth=6", "rwfRW", "....." },
	{ "nth=18446744073709551615", "rwfRW", "....." },
	{ "op=read", "wfrr", "..E." },
	{ "op=read", "WR", ".E" },
	{ "op=write", "rfww", "..E." },
	{ "op=write", "RW", ".E" },
	{ "op=flush", "rwff", "..E." },
	{ "op=any&nth=3", "rwf", "..E" },
	{ "op=read&nth=2", "rwRw", "..E." },
	{ "nth=2&times=2", "rwrwr", ".EE.." },
	{ "nth=2&times=always", "rwrwr", ".EEEE" },
	{ "op=write&times=always", "wrWfw", "E.E.E" },
	{ "times=18446744073709551615&nth=3", "rrrr", "..EE" },
	{ "delay=1", "rw", "E." },
};

Test(error, which_calls_fail)
{
	for (size_t i = 0; i < COUNT(runs); i++) {
		void *h = must_open(&full, runs[i].keys);
		char got[16] = "";

		for (size_t k = 0; runs[i].calls[k]; k++) {
			int err = call(h, runs[i].calls[k]);

			cr_expect(err == 0 || err == -EIO);
			got[k] = err ? 'E' : '.';
		}
		cr_expect_str_eq(got, runs[i].results, "\"%s\" %s: %s instead of %s", runs[i].keys,
				 runs[i].calls, got, runs[i].results);
		filter->close(h);
	}
}

Test(error, with_which_error)
{
	static const struct { const char *keys; int err; } errors[] = {
		{ "errno=EIO", EIO },       { "errno=ENOSPC", ENOSPC }, { "errno=EDQUOT", EDQUOT },
		{ "errno=EINTR", EINTR },   { "errno=EAGAIN", EAGAIN }, { "errno=ENOMEM", ENOMEM },
		{ "errno=EFBIG", EFBIG },   { "errno=EROFS", EROFS },   { "errno=ESTALE", ESTALE },
		{ "errno=1", EPERM },       { "errno=28", ENOSPC },     { "errno=4095", 4095 },
	};

	for (size_t i = 0; i < COUNT(errors); i++) {
		void *h = must_open(&full, errors[i].keys);

		cr_expect_eq(call(h, "rwfRW"[i % 5]), -errors[i].err, "%s", errors[i].keys);
		filter->close(h);
	}
}

Test(error, bad_values)
{
	static const char *const bad[] = {
		"nth=",
		"nth=0",
		"nth=-1",
		"nth=1x",
		"nth= 1",
		"nth=18446744073709551616",
		"nth=x",
		"op=",
		"op=reads",
		"op=READ",
		"op=sync",
		"errno=",
		"errno=EWHAT",
		"errno=0",
		"errno=4096",
		"errno=-5",
		"errno=eio",
		"times=0",
		"times=",
		"times=never",
		"times=-1",
		"short=",
		"short=-1",
		"short=x",
		"delay=",
		"delay=-1",
		"delay=1ms",
		"count=",
		"count=/nowhere/at/all",
		"nth=1&op=read&errno=no",
	};
	struct ummap_geom geom;
	void *h;

	for (size_t i = 0; i < COUNT(bad); i++) {
		const char *key = strrchr(bad[i], '&') ? strrchr(bad[i], '&') + 1 : bad[i];
		char name[16] = "error.";

		strncat(name, key, strcspn(key, "="));
		cr_expect_eq(open_over(&full, bad[i], -1, &h, &geom), -EINVAL, "takes \"%s\"",
			     bad[i]);
		cr_expect(strstr(geom.why, name), "\"%s\": %s", bad[i], geom.why);
	}
	cr_expect_eq(open_over(NULL, "", -1, &h, &geom), -EINVAL);
	cr_expect(strstr(geom.why, "filter"), "%s", geom.why);
}

/* A transfer that stops halfway has moved exactly the bytes that the key gives. */
Test(error, half_done)
{
	static const struct { const char *keys; size_t moved; } cases[] = {
		{ "op=write", 0 }, { "op=write&short=0", 0 },   { "op=write&short=7", 7 },
		{ "short=10", 10 }, { "short=15", 15 },         { "short=20", 20 },
		{ "short=999", 20 },
	};
	char text[] = "abcdefghijklmnopqrst", back[20];
	struct iovec iov[2] = { { text, 10 }, { text + 10, 10 } };
	struct iovec into[2] = { { back, 10 }, { back + 10, 10 } };

	for (size_t i = 0; i < COUNT(cases); i++) {
		for (int vectored = 0; vectored < 2; vectored++) {
			void *h = must_open(&full, cases[i].keys);

			memset(probe.data, '.', SIZE);
			cr_expect_eq(vectored ? filter->writev(h, iov, 2, 5) :
						filter->write(h, text, 20, 5), -EIO);
			for (size_t k = 0; k < SIZE; k++)
				cr_expect_eq(probe.data[k],
					     k >= 5 && k < 5 + cases[i].moved ? text[k - 5] : '.',
					     "%s byte %zu", cases[i].keys, k);
			filter->close(h);
		}
	}
	for (int vectored = 0; vectored < 2; vectored++) {
		void *h = must_open(&full, "op=read&short=13&errno=ENOMEM");

		memcpy(probe.data, text, 20);
		memset(back, '.', sizeof(back));
		cr_expect_eq(vectored ? filter->readv(h, into, 2, 0) :
					filter->read(h, back, 20, 0), -ENOMEM);
		cr_expect_arr_eq(back, "abcdefghijklm.......", 20);
		filter->close(h);
	}
}

Test(error, what_reaches_the_next)
{
	void *h = must_open(&full, "nth=2");

	call(h, 'r');
	call(h, 'r');
	cr_expect_eq(probe.reads, 1, "the failed read must not have happened");
	call(h, 'w');
	call(h, 'R');
	call(h, 'W');
	call(h, 'f');
	cr_expect(probe.writes == 1 && probe.vectors == 2 && probe.flushes == 1);
	cr_expect_eq(filter->close(h), 0);
	cr_expect_eq(probe.closes, 1);
	probe.close_result = -EIO;
	cr_expect_eq(filter->close(must_open(&full, "")), -EIO);
}

Test(error, geometry_and_sizes)
{
	struct ummap_geom geom;
	uint64_t size;
	void *h;

	cr_assert_eq(open_over(&full, "nth=9", 17, &h, &geom), 0);
	cr_expect_eq(probe.fd, 17);
	cr_expect(geom.size == SIZE && geom.align == 512 && geom.optimal == 8192);
	cr_expect_eq(geom.caps, UMMAP_CAP_WRITE | UMMAP_CAP_GROW | UMMAP_CAP_PARALLEL |
					UMMAP_CAP_FAULTSAFE | UMMAP_CAP_DIRECT);
	cr_expect_eq(filter->resize(h, 99), 0);
	cr_expect(probe.size == 99 && filter->size(h, &size) == 0 && size == 99);
	cr_expect(!filter->map && !filter->persist);
	filter->close(h);
}

/* The next driver lacks the optional calls. */
Test(error, over_a_bare_driver)
{
	struct ummap_driver read_only = bare, old = bare;
	char text[] = "0123456789";
	struct iovec iov[2] = { { text, 4 }, { text + 4, 6 } };
	struct ummap_geom geom;
	uint64_t size;
	void *h = must_open(&bare, "nth=99");

	cr_expect_eq(filter->writev(h, iov, 2, SIZE - 10), 0);
	cr_expect_arr_eq(probe.data + SIZE - 10, text, 10);
	cr_expect_eq(probe.writes, 2);
	cr_expect(filter->size(h, &size) == 0 && size == SIZE);
	cr_expect_eq(filter->flush(h, 0, 1), 0);
	cr_expect_eq(filter->resize(h, 1), -EOPNOTSUPP);
	filter->close(h);

	cr_expect_eq(open_over(&bare, "", 5, &h, &geom), -EINVAL);
	cr_expect(strstr(geom.why, "the driver 'bare' takes none"), "%s", geom.why);

	read_only.write = NULL;
	cr_assert_eq(open_over(&read_only, "", -1, &h, &geom), 0);
	cr_expect_eq(geom.caps & (UMMAP_CAP_WRITE | UMMAP_CAP_GROW), 0);
	filter->close(h);

	/* The fields behind the end of an older table are not calls. */
	old.struct_size = offsetof(struct ummap_driver, readv);
	memset(&old.readv, 0x5a, sizeof(old) - old.struct_size);
	h = must_open(&old, "nth=99");
	cr_expect_eq(call(h, 'R'), 0);
	cr_expect_eq(call(h, 'W'), 0);
	cr_expect_eq(filter->size(h, &size), 0);
	filter->close(h);
}

/* Writes enlarge a store whose driver has no call `size`, so the filter counts its bytes. */
Test(error, size_as_written)
{
	void *h = must_open(&bare, "nth=2&times=always");
	uint64_t size;
	char byte = 0;

	cr_assert_eq(filter->write(h, &byte, 1, SIZE), 0);
	cr_expect(filter->size(h, &size) == 0 && size == SIZE + 1);
	cr_assert_eq(filter->write(h, &byte, 1, SIZE + 1), -EIO);
	cr_expect(filter->size(h, &size) == 0 && size == SIZE + 1);
	filter->close(h);
}

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static char count_path[] = "/tmp/test_error.XXXXXX";
static char count_keys[64];

/* Opens the filter with these keys and a count file. */
static const char *counted(const char *keys)
{
	snprintf(count_keys, sizeof(count_keys), "%s&count=%s", keys, count_path);
	return count_keys;
}

static void make_count_file(void)
{
	close(mkstemp(count_path));
}

static void remove_count_file(void)
{
	unlink(count_path);
}

static void expect_count(const char *expected)
{
	char text[64] = "";
	int fd = open(count_path, O_RDONLY);

	cr_expect_gt(read(fd, text, sizeof(text) - 1), 0);
	close(fd);
	cr_expect_str_eq(text, expected, "%s instead of %s", text, expected);
}

#define CountTest(name) Test(error, name, .init = make_count_file, .fini = remove_count_file)

CountTest(next_does_not_open)
{
	struct ummap_geom geom;
	void *h;
	int before = open_files();

	probe.open_result = -ENOENT;
	cr_expect_eq(open_over(&full, counted("nth=2"), -1, &h, &geom), -ENOENT);
	cr_expect_str_eq(geom.why, "probe will not open");
	probe.open_result = 0;
	strcat(count_keys, "&times=no");
	cr_expect_eq(open_over(&full, count_keys, -1, &h, &geom), -EINVAL);
	filter->close(must_open(&full, counted("nth=2")));
	cr_expect_eq(open_files(), before, "a descriptor was left open");
}

CountTest(count_file)
{
	void *h = must_open(&full, counted("op=read&nth=2&times=2"));

	expect_count("seen 0 fired 0\n");
	for (int i = 0; i < 12; i++)
		call(h, i == 4 ? 'w' : i == 5 ? 'R' : 'r');
	expect_count("seen 11 fired 2\n");
	filter->close(h);
	expect_count("seen 11 fired 2\n");
}

/* Tests try every error of some work by increasing nth until no call fails. */
CountTest(count_up_until_nothing_fires)
{
	for (int nth = 1; nth <= 7; nth++) {
		char keys[16];
		int failed = 0;
		void *h;

		snprintf(keys, sizeof(keys), "nth=%d", nth);
		h = must_open(&full, counted(keys));
		for (const char *c = "wWwfrR"; *c; c++)
			failed += call(h, *c) != 0;
		filter->close(h);
		cr_expect_eq(failed, nth <= 6);
		expect_count(nth <= 6 ? "seen 6 fired 1\n" : "seen 6 fired 0\n");
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Calls that `op` does not name are not delayed by the minute. */
Test(error, delay, .timeout = 40)
{
	void *h = must_open(&full, "nth=9&op=read&delay=100000");
	double start = seconds();

	call(h, 'r');
	cr_expect_geq(seconds() - start, 0.1);
	filter->close(h);
	h = must_open(&full, "nth=9&op=read&delay=60000000");
	call(h, 'w');
	filter->close(h);
}

#define THREADS 8
#define CALLS 2000

static void *many_calls(void *h)
{
	intptr_t failed = 0;

	for (int i = 0; i < CALLS; i++)
		failed += filter->flush(h, 3, 4) != 0;
	return (void *)failed;
}

CountTest(many_threads)
{
	void *h = must_open(&full, counted("nth=5000&times=777"));
	pthread_t threads[THREADS];
	intptr_t failed = 0;

	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, many_calls, h), 0);
	for (int i = 0; i < THREADS; i++) {
		void *mine;

		pthread_join(threads[i], &mine);
		failed += (intptr_t)mine;
	}
	cr_expect_eq(failed, 777);
	expect_count("seen 16000 fired 777\n");
	filter->close(h);
}
