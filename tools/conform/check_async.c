/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of submit and reap. The requests of a check stand in one array, so that a check can tell a
 * request that returns from one that was never submitted, or that has returned before.
 */
#include "conform.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define REQUESTS 256
#define FLOOD 20000       /* number of requests, more than any driver holds */
#define LEN_MAX (16 * KIB)
#define DONE_MAX 32
#define THREADS 4

struct batch {
	struct handle *h;
	struct ummap_io *io;
	unsigned n, sent, reaped;
	bool *back;           /* whether each request has been reaped */
};

static void need_async(const struct handle *h)
{
	if (!handle_can(h, UMMAP_CAP_ASYNC))
		skip("UMMAP_CAP_ASYNC is not set");
}

static void batch_init(struct batch *b, struct handle *h, unsigned n)
{
	*b = (struct batch){ .h = h, .n = n };
	b->io = memory(n * sizeof(*b->io));
	b->back = memory(n * sizeof(*b->back));
}

static void request(struct batch *b, unsigned i, int op, void *buf, size_t len, uint64_t off)
{
	b->io[i] = (struct ummap_io){
		.op = (uint8_t)op, .buf = buf, .len = len, .off = off, .res = 1, .owner = &b->io[i]
	};
}

/* Makes n reads at random offsets. */
static void request_reads(struct batch *b, struct handle *h, unsigned n, unsigned char *bufs,
			  size_t len)
{
	batch_init(b, h, n);
	for (unsigned i = 0; i < n; i++)
		request(b, i, UMMAP_IO_READ, bufs + i * len, len, random_below(facts->size - len));
}

static void compare_reads(const struct batch *b, const char *what)
{
	for (unsigned i = 0; i < b->n; i++)
		shadow_compare(b->io[i].buf, b->io[i].len, b->io[i].off, what);
}

/* Submits up to max requests, and returns how many the driver accepted. */
static unsigned submit(struct batch *b, unsigned max)
{
	struct ummap_io *list[REQUESTS];
	unsigned n = b->n - b->sent < max ? b->n - b->sent : max;
	int taken;

	n = n < REQUESTS ? n : REQUESTS;
	for (unsigned i = 0; i < n; i++)
		list[i] = &b->io[b->sent + i];
	taken = b->h->driver.submit(b->h->h, list, n);
	expect(taken >= 0, "submit: %s; a driver that is full returns 0", error_name(taken));
	expect((unsigned)taken <= n, "submit was offered %u requests and says that it took %d", n,
	       taken);
	b->sent += (unsigned)taken;
	return (unsigned)taken;
}

static void note_back(struct batch *b, struct ummap_io *io)
{
	size_t i = (size_t)(io - b->io);

	expect(io >= b->io && i < b->n && io == &b->io[i],
	       "reap gives a request that is none of those that this thread has submitted");
	expect(i < b->sent, "reap gives a request before it was submitted");
	expect(!b->back[i], "reap gives a request twice");
	expect(io->owner == io, "the driver has changed `owner` of a request");
	expect(io->res == 0, "a %s of %zu bytes at %ju came back with %s",
	       io->op == UMMAP_IO_READ ? "read" : "write", io->len, (uintmax_t)io->off,
	       error_name(io->res));
	b->back[i] = true;
	b->reaped++;
}

static unsigned reap(struct batch *b, unsigned max, unsigned min)
{
	struct ummap_io *done[DONE_MAX];
	int n = b->h->driver.reap(b->h->h, done, max, min);

	expect(n >= 0, "reap: %s", error_name(n));
	expect((unsigned)n <= max, "reap was asked for at most %u requests and gives %d", max, n);
	expect((unsigned)n >= min, "reap was asked for at least %u requests and gives %d", min, n);
	for (int i = 0; i < n; i++)
		note_back(b, done[i]);
	return (unsigned)n;
}

static void reap_rest(struct batch *b)
{
	while (b->reaped < b->sent) {
		doing("reap, with %u of %u requests still out", b->sent - b->reaped, b->sent);
		reap(b, DONE_MAX, 1);
	}
	doing("reap, with nothing in flight and a minimum of 0");
	expect(reap(b, DONE_MAX, 0) == 0, "reap gives requests when none is left");
}

/* Submits and reaps all requests. */
static void run(struct batch *b)
{
	while (b->sent < b->n) {
		doing("submit, with %u requests in flight", b->sent - b->reaped);
		if (submit(b, 1 + (unsigned)random_below(64)) == 0) {
			expect(b->sent > b->reaped,
			       "submit takes nothing, and nothing is in flight");
			doing("reap, when submit took nothing");
			reap(b, DONE_MAX, 1);
		} else if (random_below(2)) {
			doing("reap with a minimum of 0");
			reap(b, 1 + (unsigned)random_below(DONE_MAX), 0);
		}
		doing("size, with %u requests in flight", b->sent - b->reaped);
		handle_size(b->h);
	}
	reap_rest(b);
}

/* Chooses offsets in the store that do not overlap, in random order. */
static void random_places(size_t *place, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned j = (unsigned)random_below(i + 1);

		place[i] = place[j];
		place[j] = i;
	}
}

void check_async(void)
{
	size_t place[REQUESTS],
		slot = facts->size / REQUESTS < LEN_MAX ? facts->size / REQUESTS : LEN_MAX;
	unsigned char *bufs = memory(REQUESTS * LEN_MAX);
	struct handle h;
	struct batch b;

	handle_fill(&h);
	need_async(&h);
	for (int round = 0; round < 4; round++) {
		bool writing = facts->writable && round % 2;

		random_places(place, REQUESTS);
		batch_init(&b, &h, REQUESTS);
		for (unsigned i = 0; i < REQUESTS; i++) {
			size_t len = round < 2 ? slot : 1 + random_below(slot);

			request(&b, i, writing ? UMMAP_IO_WRITE : UMMAP_IO_READ, bufs + i * LEN_MAX,
				len, place[i] * slot);
			if (writing) {
				random_fill(b.io[i].buf, len);
				shadow_write(b.io[i].off, b.io[i].buf, len);
			}
		}
		run(&b);
		if (!writing)
			compare_reads(&b, "an asynchronous read");
		shadow_compare_all(&h, "after asynchronous requests");
	}
	handle_close(&h);
}

void check_async_full(void)
{
	enum { LEN = 64 };
	unsigned char *bufs = memory(FLOOD * LEN);
	struct handle h;
	struct batch b;
	bool full = false;

	handle_fill(&h);
	need_async(&h);
	request_reads(&b, &h, FLOOD, bufs, LEN);
	while (b.sent < b.n) {
		doing("submit, with %u requests in flight and none reaped since",
		      b.sent - b.reaped);
		while (b.sent < b.n && submit(&b, 100) > 0)
			full = false;
		expect(!full, "submit takes nothing twice, though requests were reaped between");
		if (b.sent == b.n)
			break;
		expect(b.sent > b.reaped, "submit takes nothing, and nothing is in flight");
		full = true;
		doing("reap, when submit took nothing");
		reap(&b, DONE_MAX, 1);
	}
	reap_rest(&b);
	compare_reads(&b, "an asynchronous read, one of very many");
	handle_close(&h);
}

/* Reaping without waiting returns all requests in the end, too. */
void check_async_poll(void)
{
	const struct timespec pause = { 0, 100000 };
	unsigned char *bufs = memory(REQUESTS * KIB);
	struct handle h;
	struct batch b;

	handle_fill(&h);
	need_async(&h);
	batch_init(&b, &h, REQUESTS);
	doing("reap with a minimum of 0 and nothing in flight, which must not wait");
	expect(reap(&b, DONE_MAX, 0) == 0, "reap gives requests before there are any");
	request_reads(&b, &h, REQUESTS, bufs, KIB);
	while (b.reaped < b.n) {
		if (b.sent < b.n)
			submit(&b, 16);
		doing("reap with a minimum of 0, again and again: %u requests do not come back",
		      b.sent - b.reaped);
		while (reap(&b, 3, 0) == 0)
			nanosleep(&pause, NULL);
	}
	doing("reap with a minimum of 0, when all are back");
	expect(reap(&b, DONE_MAX, 0) == 0, "reap gives requests when none is left");
	compare_reads(&b, "an asynchronous read");
	handle_close(&h);
}

static void run_one(struct handle *h, int op, void *buf, size_t len, uint64_t off)
{
	struct batch b;

	batch_init(&b, h, 1);
	request(&b, 0, op, buf, len, off);
	run(&b);
}

static void grow_once(struct handle *h, size_t gap, size_t len)
{
	uint64_t off = handle_size(h) + gap;
	unsigned char *buf = memory(len), *back = memory(len);

	random_fill(buf, len);
	run_one(h, UMMAP_IO_WRITE, buf, len, off);
	expect(handle_size(h) == off + len,
	       "after an asynchronous write the store has %ju bytes and should have %ju",
	       (uintmax_t)handle_size(h), (uintmax_t)(off + len));
	handle_read(h, back, len, off);
	expect(memcmp(buf, back, len) == 0,
	       "an asynchronous write past the end is not what is read there");
}

void check_async_end(void)
{
	static unsigned char buf[20000], back[20000];
	struct handle h;
	uint64_t end;

	handle_fill(&h);
	need_async(&h);
	end = handle_size(&h);
	memset(buf, 0xa5, sizeof(buf));
	run_one(&h, UMMAP_IO_READ, buf, sizeof(buf), end - 1001);
	for (size_t i = 1001; i < sizeof(buf); i++)
		expect(buf[i] == 0,
		       "an asynchronous read across the end: byte %ju, past it, is 0x%02x and "
		       "should be 0",
		       (uintmax_t)(end - 1001 + i), buf[i]);
	handle_read(&h, back, 1001, end - 1001);
	expect(memcmp(buf, back, 1001) == 0,
	       "an asynchronous read across the end gives other bytes before it than read");
	if (handle_can(&h, UMMAP_CAP_GROW) && !options.swallows)
		grow_once(&h, 333, 7777);
	handle_close(&h);
}

/*
 * Threads submit and reap at the same time, and each thread must get its own requests. In each
 * round the threads submit a few requests in turns, so that all have some in the driver. They reap
 * in the same order or in the opposite one, so that a driver which confuses them returns a request
 * of another thread. No thread begins a round while another one needs room.
 */
struct reaper {
	struct handle *h;
	pthread_barrier_t *all;
	int number;
};

static void take_turns(const struct reaper *reaper, struct batch *b, bool backwards)
{
	for (int turn = 0; turn < THREADS; turn++) {
		if (turn == reaper->number)
			submit(b, 2);
		pthread_barrier_wait(reaper->all);
	}
	for (int turn = 0; turn < THREADS; turn++) {
		while (turn == (backwards ? THREADS - 1 - reaper->number : reaper->number) &&
		       b->reaped < b->sent)
			reap(b, DONE_MAX, b->sent - b->reaped);
		pthread_barrier_wait(reaper->all);
	}
}

static void *use_own_requests(void *arg)
{
	const struct reaper *reaper = arg;
	struct handle *h = reaper->h;
	unsigned char *bufs = memory(REQUESTS * KIB);
	struct batch b;

	for (int round = 0; round < 8; round++) {
		request_reads(&b, h, REQUESTS, bufs, KIB);
		take_turns(reaper, &b, round % 2 == 0);
		while (b.reaped < b.n) {
			submit(&b, 16);
			/* If other threads have filled the driver, it may have no request of this
			 * one. */
			if (b.sent > b.reaped)
				reap(&b, DONE_MAX, 1);
		}
		compare_reads(&b, "an asynchronous read by one of several threads");
		pthread_barrier_wait(reaper->all);
	}
	return NULL;
}

void check_async_threads(void)
{
	struct handle h;
	pthread_t threads[THREADS];
	pthread_barrier_t all;
	struct reaper reapers[THREADS];

	handle_fill(&h);
	need_async(&h);
	if (!handle_can(&h, UMMAP_CAP_PARALLEL))
		skip("UMMAP_CAP_PARALLEL is not set");
	doing("%d threads that submit and reap", THREADS);
	pthread_barrier_init(&all, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		reapers[i] = (struct reaper){ &h, &all, i };
		expect(pthread_create(&threads[i], NULL, use_own_requests, &reapers[i]) == 0,
		       "pthread_create failed");
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all);
	shadow_compare_all(&h, "after threads submitted and reaped");
	handle_close(&h);
}

/* A child is forked while requests are in flight, and closes the handle. The parent must still get
 * its requests. */
void check_async_fork(void)
{
	unsigned char *bufs = memory(REQUESTS * KIB);
	struct handle h;
	struct batch b;
	pid_t child;

	handle_fill(&h);
	need_async(&h);
	request_reads(&b, &h, REQUESTS, bufs, KIB);
	submit(&b, REQUESTS);
	doing("close, in a child that was forked with %u requests in flight", b.sent);
	child = fork_child();
	if (child == 0) {
		handle_close(&h);
		_exit(0);
	}
	wait_for(child);
	run(&b);
	compare_reads(&b, "an asynchronous read by the parent of a forked child");
	handle_close(&h);
}

/* Closes the handle with requests in flight. Then the driver must not use their buffers any more.
 */
static void close_in_flight(struct handle *h, unsigned n, size_t len)
{
	unsigned char *bufs = memory(n * len);
	const struct timespec pause = { 0, 20000000 };
	struct batch b;

	request_reads(&b, h, n, bufs, len);
	submit(&b, n);
	doing("close with %u reads of %zu bytes in flight", b.sent, len);
	handle_close(h);
	memset(bufs, 0xa5, n * len);
	memset(b.io, 0xa5, n * sizeof(*b.io));
	nanosleep(&pause, NULL);
	for (size_t i = 0; i < n * len; i++)
		expect(bufs[i] == 0xa5, "%s: a buffer is written after close has returned",
		       verdict->doing);
	for (size_t i = 0; i < n * sizeof(*b.io); i++)
		expect(((unsigned char *)b.io)[i] == 0xa5,
		       "%s: a request is written after close has returned", verdict->doing);
}

void check_async_close(void)
{
	struct handle h;

	handle_fill(&h);
	need_async(&h);
	if (facts->writable)
		handle_flush(&h);
	close_in_flight(&h, 64, LEN_MAX);
	for (unsigned n = 1; n <= REQUESTS; n *= 4) {
		handle_open(&h);
		close_in_flight(&h, n, KIB);
		handle_open(&h);
		close_in_flight(&h, n, LEN_MAX);
	}
	handle_open(&h);
	if (!options.forgets)
		shadow_compare_all(&h, "after handles were closed with requests in flight");
	handle_close(&h);
}
