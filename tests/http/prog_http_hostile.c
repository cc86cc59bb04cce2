/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_http_hostile - servers that are slow, fail or lie: a load gives the right bytes or fails,
 * never wrong bytes, and in time; the message says why.
 */
#include "plugins.h"
#include "server.h"

#include <sched.h>

static struct ummap_driver driver;
static void *handle;
static struct ummap_geom geom;
static char notice[600];
static unsigned notices;
static struct server *near_server; /* server on one processor */

static void take_notice(void *arg, const char *message)
{
	(void)arg;
	snprintf(notice, sizeof(notice), "%s", message);
	notices++;
}

static int open_object(const char *path, const char *keys)
{
	char uri[400];
	int result;

	server_uri(path, keys, uri);
	driver.struct_size = sizeof(driver);
	memset(&geom, 0, sizeof(geom));
	result = ummap_driver_open(uri, 0, &driver, &handle, &geom);
	*notice = '\0';
	notices = 0;
	if (result == 0)
		driver.set_notice(handle, take_notice, NULL);
	return result;
}

static void close_object(void)
{
	check(driver.close(handle) == 0);
}

/* Opening fails, and the message has the text. */
static void check_refused(const char *path, const char *keys, int error, const char *text)
{
	check(open_object(path, keys) == -1 && errno == error, "%s: %s", path, strerror(errno));
	check(strstr(umerrormsg(), text), "%s: %s", path, umerrormsg());
}

/* A load gives the right bytes. */
static void check_load(uint64_t off, size_t len)
{
	uint8_t *bytes = malloc(len);
	size_t inside = off < OBJECT_BYTES ? OBJECT_BYTES - off : 0;
	int res = driver.read(handle, bytes, len, off);

	inside = inside < len ? inside : len;
	check(res == 0, "%s: %s", strerror(-res), notice);
	check_bytes(bytes, inside, off, SEED);
	check_zeros(bytes + inside, len - inside);
	free(bytes);
}

static void check_good(const char *path, const char *keys)
{
	check(open_object(path, keys) == 0, "%s: %s", path, umerrormsg());
	check(geom.size == OBJECT_BYTES);
	check_load(0, 1);
	check_load(4095, 70000);
	check_load(OBJECT_BYTES - 100, 300);
	check_load(OBJECT_BYTES + 5, 10);
	check_load(1 * MIB + 1, 3 * MIB);
	close_object();
}

/* A load fails within some seconds, and the notice has the text. */
static void check_bad(const char *path, const char *keys, const char *text, double seconds)
{
	static uint8_t bytes[MIB];
	double begin = now();
	int res;

	check(open_object(path, keys) == 0, "%s: %s", path, umerrormsg());
	res = driver.read(handle, bytes, sizeof(bytes), 12345);
	check(res == -EIO, "%s: %d", path, res);
	check(strstr(notice, text) && notices == 1, "%s: %s", path, notice);
	check(now() - begin < seconds, "%s took %g s", path, now() - begin);
	close_object();
}

/* The answer to the request for the first byte of an object of S3. */
static void check_opening_s3(void)
{
	char uri[400];

	snprintf(uri, sizeof(uri), "s3:bucket/status416!?credentials=none&endpoint=http://"
		 "127.0.0.1:%d", server->port);
	driver.struct_size = sizeof(driver);
	memset(&geom, 0, sizeof(geom));
	check(ummap_driver_open(uri, 0, &driver, &handle, &geom) == -1 && errno == EIO);
}

static void check_openings(void)
{
	check_refused("status404!", "", ENOENT, "no such object");
	check_refused("status403!", "", EACCES, "netrc");
	check_refused("status500!", "retries=1", EIO, "status 500");
	check_refused("loop!", "", EIO, "redirects");
	check_refused("whole!", "", EOPNOTSUPP, "whole=yes");
	check_refused("nameless!", "", EOPNOTSUPP, "validator=none");
	check_refused("encoded!", "", EIO, "compressed");
	check_refused("garbage!", "retries=1", EIO, "");
	check_refused("silence!", "timeout=1", EIO, "attempts:");
	check_refused("shifted!", "", EIO, "not have the bytes");
	check_refused("good", "timeout=0", EINVAL, "timeout");
	check_refused("good", "version=3", EINVAL, "version");
	check_refused("good", "range=1", EINVAL, "range");
	check_refused("wide!", "", EIO, "too long");
	check_refused("unbounded!", "whole=yes", EOPNOTSUPP, "does not tell the length");
	server->failures = 1000;
	check_refused("torn!", "retries=1", EIO, "attempts: 2");
	check_refused("whole!", "whole=yes&retries=1", EIO, "status 503");
	server->failures = 0;
	check_opening_s3();
	check(open_object("empty!", "") == 0 && geom.size == 0);
	close_object();
}

static void check_good_servers(void)
{
	check_good("good", "");
	check(server->conditions > 0);
	check_good("good", "range=4096&requests=3");
	check_good("part", "");
	check_good("chunked", "");
	check_good("nameless!", "validator=none");
	check_good("whole!", "whole=yes");
	server->failures = 2;
	check_good("whole!", "whole=yes");
	check(server->failures <= 0);
	server->conditions = 0;
	check_good("dated", "");
	check(server->conditions > 0);
	/* The driver uses a connection again before it has seen the bytes behind an answer. */
	for (int i = 0; i < 20; i++) {
		check_good("excess", "range=64K&requests=2");
		check_good("twice", "range=64K&requests=2");
		check_good("stray", "range=64K&requests=2");
	}
}

/* A download that stalls fails about after the time of the key timeout. */
static void check_halted(void)
{
	double begin = now();

	check_refused("halted!", "whole=yes&timeout=2", EIO, "too slow");
	check(now() - begin < 15, "%g s", now() - begin);
}

/* Failures that repetitions overcome. */
static void check_repetitions(void)
{
	server->failures = 3;
	check_good("reset", "");
	check(server->failures == 0);
	server->failures = 3;
	check_good("torn", "");
	check(server->failures <= 0);
	server->failures = 3;
	check_good("busy", "");
	server->failures = 1;
	check_good("late", "timeout=8");
	server->failures = 1000;
	check_bad("busy", "retries=2", "status 503", 3);
	server->failures = 1000;
	check_bad("busy", "timeout=1", "status 503", 3);
	server->failures = 1000000;
	check_bad("reset", "retries=3&range=1M", "attempts: 4", 5);
	server->failures = 0;
}

/* A redirect to an address that stops to work is followed again. */
static void check_moved(void)
{
	unsigned before;

	check(open_object("moved!", "") == 0, "%s", umerrormsg());
	before = server->requests;
	for (uint64_t off = 0; off < 10000; off += 1000)
		check_load(off, 1000);
	/* Two of three loads need the address, the refusal, the redirect, and the address. */
	check(server->requests - before < 30, "%u", server->requests - before);
	close_object();
	server->failures = 0;
}

static void check_bad_servers(void)
{
	check_bad("changed", "", "has changed", 2);
	check_bad("longer", "", "has changed", 2);
	check_bad("status412", "", "has changed", 2);
	check_bad("status416", "", "has changed", 2);
	check_bad("status404", "", "no such object", 2);
	check_bad("status400", "", "status 400", 2);
	check_bad("whole", "", "does not send ranges", 2);
	check_bad("shifted", "", "not have the bytes", 2);
	check_bad("long", "", "not have the bytes", 2);
	check_bad("endless", "", "not have the bytes", 2);
	check_bad("lying", "", "not have the bytes", 2);
	check_bad("encoded", "", "compressed", 2);
	check_bad("wide", "", "too long", 2);
	check_bad("single", "timeout=1", "in time", 3);
	check_bad("short", "retries=3", "attempts: 4", 4);
	check_bad("garbage", "retries=1", "", 3);
	check_bad("silence", "timeout=8&retries=1", "attempts: 2", 8);
	check_bad("silence", "timeout=1", "", 3);
	check_bad("trickle", "timeout=2", "", 5);
}

/* An object that has changed stays unreadable, although the server gives the old one again. */
static void check_changed_for_good(void)
{
	static uint8_t bytes[100];

	check(open_object("changed", "") == 0);
	check(driver.read(handle, bytes, 100, 1000) == -EIO);
	check(driver.read(handle, bytes, 1, 0) == -EIO && notices == 1);
	close_object();
}

/* Reads MiB after MiB of the object, 16 parts of each at a time, and checks the results. */
static void read_parts(unsigned mib)
{
	enum { N = 128 };
	size_t len = MIB / 16;
	struct ummap_io io[N], *list[N], *done[N];
	uint8_t *bytes = malloc(N * len);
	unsigned sent = 0, reaped = 0, n = mib * 16;

	for (unsigned i = 0; i < n; i++) {
		io[i] = (struct ummap_io){ .buf = bytes + i * len, .len = len, .off = i * len,
					   .res = 1 };
		list[i] = &io[i];
	}
	server->longest = 0;
	while (reaped < n) {
		int k = sent < n ? driver.submit(handle, list + sent, n - sent) : 0;

		check(k >= 0);
		sent += (unsigned)k;
		k = driver.reap(handle, done, N, 1);
		check(k > 0);
		reaped += (unsigned)k;
	}
	for (unsigned i = 0; i < n; i++)
		check(io[i].res == 0);
	check_bytes(bytes, n * len, 0, SEED);
	free(bytes);
}

/* Neighbors are read by one request, whose length suits the time of an answer and the rate. */
static void check_ranges(void)
{
	check(open_object("far", "requests=4") == 0);
	read_parts(8);
	read_parts(8);
	check(server->longest > 2 * MIB && server->longest <= 8 * MIB, "%" PRIu64,
	      (uint64_t)server->longest);
	close_object();
	check(open_object("far", "requests=4&range=1M") == 0);
	read_parts(8);
	check(server->longest == MIB, "%" PRIu64, (uint64_t)server->longest);
	close_object();
	check(open_object("narrow", "requests=64&range=auto") == 0);
	read_parts(1);
	read_parts(1);
	check(server->longest <= 256 * KIB, "%" PRIu64, (uint64_t)server->longest);
	close_object();
}

/* An answer for several requests that does not end: each request ends in time, with an error unless
 * its bytes have come. */
static void check_stuck(void)
{
	enum { N = 32 };
	size_t len = MIB / 16;
	struct ummap_io io[N], *list[N], *done[N];
	uint8_t *bytes = malloc(N * len);
	double begin = now();
	unsigned sent = 0, reaped = 0, failed = 0;

	check(open_object("stuck", "requests=1&range=2M&timeout=3") == 0);
	for (unsigned i = 0; i < N; i++) {
		io[i] = (struct ummap_io){ .buf = bytes + i * len, .len = len, .off = i * len,
					   .res = 1 };
		list[i] = &io[i];
	}
	while (reaped < N) {
		int k = sent < N ? driver.submit(handle, list + sent, N - sent) : 0;

		check(k >= 0);
		sent += (unsigned)k;
		k = driver.reap(handle, done, N, 1);
		check(k > 0);
		reaped += (unsigned)k;
	}
	for (unsigned i = 0; i < N; i++) {
		check(io[i].res == 0 || io[i].res == -EIO);
		failed += io[i].res != 0;
		if (io[i].res == 0)
			check_bytes(bytes + i * len, len, i * len, SEED);
	}
	check(failed > 0 && now() - begin < 10, "%u in %g s", failed, now() - begin);
	close_object();
	free(bytes);
}

/* If one answer for several requests fails, those whose bytes have come are complete, and the
 * others are repeated. */
static void check_joined_failures(void)
{
	check(open_object("reset", "requests=2&range=2M") == 0);
	server->failures = 3;
	read_parts(4);
	check(server->failures <= 0 && notices == 0);
	close_object();
	check(open_object("part", "requests=2&range=2M") == 0);
	read_parts(4);
	close_object();
}

/* Many requests are in flight, over connections that are used again. */
static void check_flight(void)
{
	enum { N = 96 };
	static uint8_t bytes[N][5000];
	struct ummap_io io[N], *list[N], *done[N];
	unsigned sent = 0, reaped = 0;

	server->together = 48;
	server->most_in_flight = server->connections = 0;
	check(open_object("slow", "requests=48") == 0);
	for (unsigned i = 0; i < N; i++) {
		io[i] = (struct ummap_io){ .buf = bytes[i], .len = 5000, .off = i * 80000,
					   .res = 1 };
		list[i] = &io[i];
	}
	while (reaped < N) {
		int n = sent < N ? driver.submit(handle, list + sent, N - sent) : 0;

		check(n >= 0);
		sent += (unsigned)n;
		n = driver.reap(handle, done, N, 1);
		check(n > 0);
		reaped += (unsigned)n;
	}
	for (unsigned i = 0; i < N; i++) {
		check(io[i].res == 0);
		check_bytes(bytes[i], 5000, io[i].off, SEED);
	}
	check(server->most_in_flight == 48, "%u", server->most_in_flight);
	check(server->connections <= 50, "%u", server->connections);
	close_object();
}

static void use_one_processor(cpu_set_t *before)
{
	cpu_set_t one;
	int cpu = 0;

	check(sched_getaffinity(0, sizeof(*before), before) == 0);
	while (!CPU_ISSET(cpu, before))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	check(sched_setaffinity(0, sizeof(one), &one) == 0);
}

/* Starts both servers, before this process has threads. */
static void start_servers(void)
{
	cpu_set_t all;

	use_one_processor(&all);
	server_start();
	near_server = server;
	check(sched_setaffinity(0, sizeof(all), &all) == 0);
	server_start();
}

/* A load must not wait for a timer if the answer comes before libcurl returns from sending the
 * request, as if the server shares the processor and is woken at once. */
static void check_immediate_answers(void)
{
	uint8_t bytes[100];
	unsigned late = 0;
	cpu_set_t all;

	use_one_processor(&all);
	server = near_server;
	check(open_object("good", "") == 0);
	for (unsigned i = 0; i < 1000 && late < 4; i++) {
		double begin = now();

		check(driver.read(handle, bytes, sizeof(bytes), i * 1000) == 0);
		check_bytes(bytes, sizeof(bytes), i * 1000, SEED);
		late += now() - begin > 0.9;
	}
	check(late < 4, "%u", late);
	close_object();
}

int main(void)
{
	use_plugins();
	start_servers();
	check_good_servers();
	check_openings();
	check_repetitions();
	check_moved();
	check_halted();
	check_bad_servers();
	check_changed_for_good();
	check_flight();
	check_ranges();
	check_joined_failures();
	check_stuck();
	check_immediate_answers();
	return 0;
}
