/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter error over an asynchronous driver: held requests, passed requests, and their
 * reaping. */
#include "probe_driver.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const struct ummap_driver ummap_driver_error;
static const struct ummap_driver *const filter = &ummap_driver_error;

#define MAX_REQUESTS 64
#define LEN 4 /* bytes of a request */

/* An asynchronous driver that makes the transfers when they are reaped, the last one first. */
static struct {
	struct ummap_io *io[MAX_REQUESTS]; /* requests in flight */
	unsigned n, room;                  /* number of requests, and its limit */
	int submit_result, reap_result;    /* error that each call returns; 0: none */
} flight;

static int async_submit(void *h, struct ummap_io **io, unsigned n)
{
	unsigned i;

	cr_assert_eq(h, &probe);
	if (flight.submit_result)
		return flight.submit_result;
	for (i = 0; i < n && flight.n < flight.room; i++)
		flight.io[flight.n++] = io[i];
	return (int)i;
}

static int async_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	unsigned n;

	cr_expect_leq(min, max);
	cr_expect_leq(min, flight.n, "the filter waits for more requests than are in flight");
	if (flight.reap_result)
		return flight.reap_result;
	for (n = 0; n < max && flight.n > 0; n++) {
		struct ummap_io *io = done[n] = flight.io[--flight.n];

		io->res = io->op == UMMAP_IO_WRITE ? probe_write(h, io->buf, io->len, io->off) :
						     probe_read(h, io->buf, io->len, io->off);
	}
	return (int)n;
}

static void *open_over(const char *name, const char *value, const char *times)
{
	static struct ummap_driver next;
	struct ummap_key keys[] = { { "nth", "2" }, { "times", times }, { name, value } };
	struct ummap_uri next_uri = { .scheme = "probe", .path = "/there" };
	struct ummap_uri uri = { "error", "/there", keys, 3, &next, &next_uri };
	struct ummap_geom geom = { 0 };
	void *h = NULL;

	next = full;
	next.submit = async_submit;
	next.reap = async_reap;
	next.size = NULL;
	flight.room = MAX_REQUESTS;
	cr_assert_eq(filter->open(&uri, UMMAP_O_WRITE, &h, &geom), 0, "%s", geom.why);
	cr_assert(geom.caps & UMMAP_CAP_ASYNC);
	return h;
}

static struct ummap_io requests[MAX_REQUESTS];
static char bytes[MAX_REQUESTS][LEN];

/* Prepares writes of LEN bytes, one behind the other. res 77: the request has not ended. */
static void prepare(struct ummap_io **list, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		memset(bytes[i], 'a' + (int)i, LEN);
		requests[i] = (struct ummap_io){ .op = UMMAP_IO_WRITE, .buf = bytes[i], .len = LEN,
						 .off = i * LEN, .res = 77 };
		list[i] = &requests[i];
	}
	memset(probe.data, '.', sizeof(probe.data));
}

/* Each request must return once. */
static void reap_all(void *h, unsigned n)
{
	bool back[MAX_REQUESTS] = { false };

	for (unsigned left = n; left > 0;) {
		struct ummap_io *done[3];
		int got = filter->reap(h, done, 3, left < 3 ? left : 3);

		cr_assert(got > 0 && (unsigned)got <= left, "%d of %u", got, left);
		for (int i = 0; i < got; i++) {
			cr_expect(!back[done[i] - requests], "request %td returned twice",
				  done[i] - requests);
			back[done[i] - requests] = true;
		}
		left -= (unsigned)got;
	}
	for (unsigned i = 0; i < n; i++)
		cr_expect(back[i], "request %u never returned", i);
}

static void expect_written(unsigned i, size_t moved)
{
	for (size_t k = 0; k < LEN; k++)
		cr_expect_eq(probe.data[i * LEN + k], k < moved ? 'a' + (int)i : '.', "request %u",
			     i);
}

Test(error_async, one_of_them_fails)
{
	static const struct { const char *name, *value; size_t moved; int err;
	} cases[] = {
		{ "errno", "EIO", 0, EIO },
		{ "errno", "ENOSPC", 0, ENOSPC },
		{ "short", "3", 3, EIO },
		{ "short", "99", LEN, EIO },
	};
	struct ummap_io *list[MAX_REQUESTS];
	uint64_t size;

	for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
		void *h = open_over(cases[k].name, cases[k].value, "1");

		prepare(list, 5);
		cr_assert_eq(filter->submit(h, list, 5), 5);
		cr_expect_eq(flight.n, 4, "the request that fails has reached the next driver");
		reap_all(h, 5);
		for (unsigned i = 0; i < 5; i++) {
			cr_expect_eq(requests[i].res, i == 1 ? -cases[k].err : 0, "%u: %d", i,
				     requests[i].res);
			expect_written(i, i == 1 ? cases[k].moved : LEN);
		}
		filter->close(h);
	}
	/* The next driver has no call `size`, so the filter counts the bytes. */
	void *h = open_over("errno", "5", "1");

	prepare(list, 3);
	requests[0].off = SIZE;
	requests[1].off = SIZE + LEN;
	cr_assert_eq(filter->submit(h, list, 2), 2);
	reap_all(h, 2);
	cr_expect(filter->size(h, &size) == 0 && size == SIZE + LEN, "%zu", (size_t)size);
	filter->close(h);
	/* A write that stopped halfway counts, too. */
	h = open_over("short", "3", "1");
	cr_assert_eq(filter->submit(h, list, 2), 2);
	reap_all(h, 2);
	cr_expect(filter->size(h, &size) == 0 && size == SIZE + LEN + 3, "%zu", (size_t)size);
	filter->close(h);
}

/* Each request is delayed before it is passed on or fails. */
Test(error_async, delay)
{
	void *h = open_over("delay", "20000", "1");
	struct ummap_io *list[MAX_REQUESTS];
	struct timespec begin, end;

	prepare(list, 3);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	cr_assert_eq(filter->submit(h, list, 3), 3);
	clock_gettime(CLOCK_MONOTONIC, &end);
	cr_expect_geq((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec,
		      60000000);
	reap_all(h, 3);
	cr_expect(requests[0].res == 0 && requests[1].res == -EIO && requests[2].res == 0);
	filter->close(h);
}

/* Reads are counted and fail, too, and a failed read does not change its memory. */
Test(error_async, reads)
{
	void *h = open_over("op", "read", "1");
	struct ummap_io *list[MAX_REQUESTS];

	prepare(list, 4);
	for (unsigned i = 1; i < 4; i++)
		requests[i].op = UMMAP_IO_READ;
	cr_assert_eq(filter->submit(h, list, 4), 4);
	reap_all(h, 4);
	cr_expect(requests[0].res == 0 && requests[1].res == 0 && requests[2].res == -EIO &&
		  requests[3].res == 0);
	cr_expect(bytes[1][0] == '.' && bytes[2][0] == 'c' && bytes[3][0] == '.');
	filter->close(h);
}

/* All requests from the second one on fail. They are more than the filter can hold, so submit
 * accepts fewer. */
Test(error_async, fails_for_ever)
{
	void *h = open_over("op", "any", "always");
	struct ummap_io *list[MAX_REQUESTS];
	int taken, again;

	prepare(list, MAX_REQUESTS);
	taken = filter->submit(h, list, MAX_REQUESTS);
	cr_assert(taken > 1 && taken < MAX_REQUESTS, "%d", taken);
	cr_expect_eq(filter->submit(h, list + taken, MAX_REQUESTS - (unsigned)taken), 0,
		     "the filter accepts more requests than it can hold");
	reap_all(h, (unsigned)taken);
	again = filter->submit(h, list + taken, 1);
	cr_expect_eq(again, 1);
	cr_expect(requests[0].res == 0 && requests[1].res == -EIO &&
		  requests[taken - 1].res == -EIO);
	cr_expect_eq(requests[taken + 1].res, 77);
	cr_expect_eq(filter->reap(h, list, MAX_REQUESTS, 1), 1);
	filter->close(h);
}

/* The filter makes the transfers of requests that the next driver does not accept. If submit of the
 * next driver fails, the requests fail. */
Test(error_async, next_is_full_or_fails)
{
	void *h = open_over("op", "any", "1");
	struct ummap_io *list[MAX_REQUESTS], *done[MAX_REQUESTS];

	flight.room = 1;
	prepare(list, 4);
	cr_assert_eq(filter->submit(h, list, 4), 4);
	cr_expect_eq(flight.n, 1);
	reap_all(h, 4);
	for (unsigned i = 0; i < 4; i++) {
		cr_expect_eq(requests[i].res, i == 1 ? -EIO : 0);
		expect_written(i, i == 1 ? 0 : LEN);
	}
	flight.submit_result = -ENXIO;
	prepare(list, 2);
	cr_assert_eq(filter->submit(h, list, 2), 2);
	reap_all(h, 2);
	cr_expect(requests[0].res == -ENXIO && requests[1].res == -ENXIO);
	flight.submit_result = 0;
	filter->close(h);

	/* The held requests return first, and then the error. */
	h = open_over("op", "any", "1");
	prepare(list, 3);
	flight.room = MAX_REQUESTS;
	flight.reap_result = -EBADF;
	cr_assert_eq(filter->submit(h, list, 3), 3);
	cr_expect_eq(filter->reap(h, done, MAX_REQUESTS, 3), 1);
	cr_expect(done[0] == &requests[1] && done[0]->res == -EIO);
	cr_expect_eq(filter->reap(h, done, MAX_REQUESTS, 2), -EBADF);
	filter->close(h);
}

/* ---- Each thread reaps its own requests ---- */

#define THREADS 8
#define ROUNDS 3000

static void *submit_and_reap(void *h)
{
	struct ummap_io io[3] = { 0 }, *list[3], *done[3];
	char mem[LEN];

	for (int round = 0; round < ROUNDS; round++) {
		int taken, got, back = 0;

		for (int i = 0; i < 3; i++) {
			io[i] = (struct ummap_io){ .buf = mem, .len = LEN, .res = 77 };
			list[i] = &io[i];
		}
		taken = filter->submit(h, list, 3);
		cr_assert(taken >= 0);
		while (back < taken) {
			got = filter->reap(h, done, 3, (unsigned)(taken - back));
			cr_assert_gt(got, 0);
			for (int i = 0; i < got; i++)
				cr_assert(done[i] >= io && done[i] < io + 3 && done[i]->res == -EIO,
					  "a request of another thread");
			back += got;
		}
	}
	return NULL;
}

Test(error_async, many_threads)
{
	void *h = open_over("op", "any", "always");
	struct ummap_io *list[MAX_REQUESTS];
	pthread_t threads[THREADS];

	prepare(list, 1);
	cr_assert_eq(filter->submit(h, list, 1), 1);
	reap_all(h, 1);
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, submit_and_reap, h), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(filter->submit(h, list, 1), 1, "a place was not freed");
	reap_all(h, 1);
	filter->close(h);
}
