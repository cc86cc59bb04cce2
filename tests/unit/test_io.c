/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/io with an asynchronous driver that uses all freedom of its contract: it takes some requests
 * or none, refuses or fails requests, returns them late and in any order, or loses them.
 */
#include "io/io.h"

#include "common.h"
#include "io/plugin.h"

#include <criterion/criterion.h>

#define MAX_REQUESTS 100u  /* more than lib/io submits at a time */
#define LEN 8
#define DEPTH 5u
#define ROUNDS 3000

/* State of the driver, and results of requests. */
static struct {
	uint64_t random;
	unsigned no_room, no_submit, no_reap, no_transfer;  /* one in n calls fails; 0: none */
	uint32_t caps;
	_Atomic pid_t thread;            /* thread whose requests are in flight */
	struct ummap_io *flying[DEPTH];
	unsigned n;
	unsigned done[MAX_REQUESTS];             /* number of transfers of each request */
	bool lost;                       /* a reap has failed */
} driver;

static bool one_in(unsigned n)
{
	return n && next_random(&driver.random) % n == 0;
}

static int transfer(uint64_t off)
{
	if (one_in(driver.no_transfer))
		return -EIO;
	driver.done[off / LEN]++;
	return 0;
}

static int drive_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h, (void)buf;
	cr_assert(len == LEN && off / LEN < MAX_REQUESTS);
	return transfer(off);
}

static int drive_write(void *h, const void *buf, size_t len, uint64_t off)
{
	(void)h, (void)buf;
	cr_assert(len == LEN && off / LEN < MAX_REQUESTS);
	return transfer(off);
}

static int drive_submit(void *h, struct ummap_io **io, unsigned n)
{
	unsigned taken = 0;

	(void)h;
	cr_assert(n > 0);
	cr_assert(driver.n == 0 || driver.thread == gettid(), "another thread's turn");
	driver.thread = gettid();
	if (one_in(driver.no_submit))
		return -ENXIO;
	if (one_in(driver.no_room))
		return 0;
	while (taken < n && driver.n < DEPTH && (taken == 0 || !one_in(3)))
		driver.flying[driver.n++] = io[taken++];
	return (int)taken;
}

static int drive_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	unsigned n = 0;

	(void)h;
	cr_assert_eq(driver.thread, gettid(), "who submits reaps");
	cr_assert(max >= min && min > 0 && min <= driver.n,
		  "%u of %u: cannot wait for requests not in flight", min, driver.n);
	if (one_in(driver.no_reap)) {
		driver.lost = true;
		driver.n = 0;
		return -EBADF;
	}
	while (driver.n > 0 && n < max && (n < min || one_in(2))) {
		unsigned k = next_random(&driver.random) % driver.n;

		done[n] = driver.flying[k];
		done[n]->res = transfer(done[n]->off);
		driver.flying[k] = driver.flying[--driver.n];
		n++;
	}
	return (int)n;
}

static int drive_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	*h = &driver;
	geom->size = MAX_REQUESTS * LEN;
	geom->caps = driver.caps | UMMAP_CAP_WRITE | UMMAP_CAP_ASYNC;
	return 0;
}

static int drive_close(void *h)
{
	(void)h;
	return 0;
}

/* A replacement of plugin_driver that knows this driver only. */
const struct ummap_driver *plugin_driver(const char *scheme)
{
	static const struct ummap_driver table = {
		.struct_size = sizeof(table),
		.abi = UMMAP_DRIVER_ABI,
		.scheme = "model",
		.open = drive_open,
		.close = drive_close,
		.read = drive_read,
		.write = drive_write,
		.submit = drive_submit,
		.reap = drive_reap,
	};

	cr_assert_str_eq(scheme, "model");
	return &table;
}

static struct store *open_model(uint32_t caps)
{
	struct store *store;

	driver.caps = caps;
	cr_assert_eq(io_open("model:x", UMMAP_O_WRITE, &store), 0);
	return store;
}

static void prepare(struct ummap_io *io, unsigned n, uint8_t op)
{
	static char bytes[LEN];

	for (unsigned i = 0; i < n; i++)
		io[i] = (struct ummap_io){ .op = op, .buf = bytes, .len = LEN, .off = i * LEN };
	memset(driver.done, 0, sizeof(driver.done));
	driver.lost = false;
}

/* A request that succeeds was transferred once. The call returns the first error. */
static void check_results(const struct ummap_io *io, unsigned n, int err,
			  const struct io_count *count)
{
	unsigned errors = 0;
	int first = 0;

	cr_assert_eq(driver.n, 0, "%u requests were left behind", driver.n);
	for (unsigned i = 0; i < n; i++) {
		cr_assert(driver.done[i] <= 1, "request %u: %u times", i, driver.done[i]);
		cr_assert(io[i].res != 0 || driver.done[i] == 1, "request %u was never done", i);
		cr_assert(io[i].res == 0 || driver.done[i] == 0 || driver.lost,
			  "request %u was done: %d", i, io[i].res);
		first = first ? first : io[i].res;
		errors += io[i].res != 0;
	}
	cr_assert_eq(err, first, "%d, not %d", err, first);
	cr_assert_eq(count->read_errors + count->write_errors, errors);
	cr_assert_eq(count->read_bytes + count->write_bytes, (n - errors) * LEN);
}

static void run(struct store *store, unsigned n, uint8_t op)
{
	struct ummap_io io[MAX_REQUESTS];
	struct io_count count = { 0 };
	int err;

	prepare(io, n, op);
	err = io_run(store, io, n, true, &count);
	check_results(io, n, err, &count);
	cr_assert_eq(op == UMMAP_IO_READ ? count.write_requests : count.read_requests, 0);
}

static void run_rounds(uint32_t caps)
{
	struct store *store = open_model(caps);

	for (unsigned k = 0; k < ROUNDS; k++) {
		driver.random = k << 8;
		driver.no_room = k & 1 ? 3 : 0;
		driver.no_submit = k & 2 ? 10 : 0;
		driver.no_reap = k & 4 ? 10 : 0;
		driver.no_transfer = k & 8 ? 10 : 0;
		run(store, 1 + next_random(&driver.random) % MAX_REQUESTS,
		    k & 16 ? UMMAP_IO_WRITE : UMMAP_IO_READ);
	}
	io_close(store);
}

Test(io, whatever_the_driver_does)
{
	run_rounds(UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE);
}

/* All calls are made by one thread, which is not this one. */
Test(io, not_fault_safe)
{
	run_rounds(UMMAP_CAP_PARALLEL);
	cr_expect_neq(driver.thread, gettid());
}

Test(io, takes_nothing_at_all)
{
	struct store *store = open_model(UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE);

	driver.no_room = 1;
	run(store, MAX_REQUESTS, UMMAP_IO_WRITE);
	for (unsigned i = 0; i < MAX_REQUESTS; i++)
		cr_expect_eq(driver.done[i], 1);
	driver.no_submit = 1;
	run(store, MAX_REQUESTS, UMMAP_IO_WRITE);
	for (unsigned i = 0; i < MAX_REQUESTS; i++)
		cr_expect_eq(driver.done[i], 0);
	io_close(store);
}

/* ---- Requests in flight while their thread continues ---- */

Test(io, on_their_way)
{
	struct store *store = open_model(UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE);
	struct ummap_io io[MAX_REQUESTS], *list[MAX_REQUESTS], *done[MAX_REQUESTS];
	struct io_count count = { 0 };
	unsigned sent = 0, ended = 0;
	int n;

	cr_assert(io_overlaps(store));
	prepare(io, MAX_REQUESTS, UMMAP_IO_READ);
	for (unsigned i = 0; i < MAX_REQUESTS; i++)
		list[i] = &io[i];
	while (ended < MAX_REQUESTS) {
		if (sent < MAX_REQUESTS)
			sent += io_begin(store, list + sent, MAX_REQUESTS - sent);
		cr_assert_gt(sent, ended);
		cr_expect_gt(driver.n, 0, "requests are on their way");
		n = io_end(store, done, MAX_REQUESTS);
		cr_assert_gt(n, 0);
		for (int i = 0; i < n; i++)
			io_count(&count, done[i], 1);
		ended += (unsigned)n;
	}
	check_results(io, MAX_REQUESTS, 0, &count);
	io_close(store);
}

/* ---- Without PARALLEL, only one thread at a time has requests ---- */

static void *run_often(void *store)
{
	struct ummap_io io[3];
	struct io_count count = { 0 };

	for (unsigned k = 0; k < ROUNDS; k++) {
		static char bytes[LEN];

		for (unsigned i = 0; i < 3; i++)
			io[i] = (struct ummap_io){
				.op = UMMAP_IO_WRITE, .buf = bytes, .len = LEN, .off = i * LEN
			};
		cr_assert_eq(io_run(store, io, 3, true, &count), 0);
	}
	return NULL;
}

Test(io, takes_turns)
{
	struct store *store = open_model(UMMAP_CAP_FAULTSAFE);
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, run_often, store), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; i < 3; i++)
		cr_expect_eq(driver.done[i], 4 * ROUNDS);
	io_close(store);
}
