/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter trace without the library: the calls that it passes to the next driver, and their
 * lines. */
#include "probe_driver.h"

#include <criterion/criterion.h>

#include "trace.h"

#include <stddef.h>

extern const struct ummap_driver ummap_driver_trace;
static const struct ummap_driver *const filter = &ummap_driver_trace;

static int open_over(const struct ummap_driver *next, int fd, void **h, struct ummap_geom *geom)
{
	struct ummap_uri next_uri = { .scheme = next->scheme, .path = "/there" };
	struct ummap_key key = { "file", in_dir("t.csv") };
	struct ummap_uri uri = { "trace", "/there", &key, 1, next, &next_uri };

	memset(geom, 0, sizeof(*geom));
	return fd < 0 ? filter->open(&uri, UMMAP_O_WRITE, h, geom) :
			filter->open_fd(&uri, fd, UMMAP_O_WRITE, h, geom);
}

static void *must_open(const struct ummap_driver *next, struct ummap_geom *geom)
{
	void *h = NULL;

	check(open_over(next, -1, &h, geom) == 0, "%s", geom->why);
	return h;
}

static void check_line(size_t i, const char *op, uint64_t off, uint64_t len, int result)
{
	const struct line *l = &trace.line[i];

	check(i < trace.n && strcmp(l->op, op) == 0 && l->off == off && l->len == len &&
		      l->result == result,
	      "line %zu of %zu: %s,%" PRIu64 ",%" PRIu64 ",%d", i, trace.n, l->op, l->off, l->len,
	      l->result);
	check(l->thread == gettid());
}

Test(calls, are_passed_on)
{
	struct ummap_geom geom;
	char buf[20] = "0123456789abcdefghi";
	struct iovec iov[2] = { { buf, 5 }, { buf + 5, 15 } };
	uint64_t size;
	void *h = must_open(&full, &geom);

	check(geom.size == 256 && geom.align == 512 && geom.optimal == 8192);
	check(geom.caps == (UMMAP_CAP_WRITE | UMMAP_CAP_GROW | UMMAP_CAP_PARALLEL |
			    UMMAP_CAP_FAULTSAFE | UMMAP_CAP_DIRECT));
	check(filter->write(h, buf, 20, 100) == 0 && probe.writes == 1);
	check(filter->writev(h, iov, 2, 7) == 0 && probe.vectors == 1 && probe.writes == 1);
	memset(buf, 0, sizeof(buf));
	check(filter->read(h, buf, 20, 100) == 0 && probe.reads == 1 &&
	      strcmp(buf, "0123456789abcdefghi") == 0);
	check(filter->readv(h, iov, 2, 7) == 0 && probe.vectors == 2 &&
	      strcmp(buf, "0123456789abcdefghi") == 0);
	check(filter->flush(h, 3, 4) == 0 && probe.flushes == 1);
	check(filter->resize(h, 99) == 0 && probe.size == 99);
	check(filter->size(h, &size) == 0 && size == 99);
	probe.close_result = -EIO;
	check(filter->close(h) == -EIO && probe.closes == 1);

	read_trace(in_dir("t.csv"));
	check(trace.n == 7, "%zu", trace.n);
	check_line(0, "write", 100, 20, 0);
	check_line(1, "write", 7, 20, 0);
	check_line(2, "read", 100, 20, 0);
	check_line(3, "read", 7, 20, 0);
	check_line(4, "flush", 3, 4, 0);
	check_line(5, "resize", 0, 99, 0);
	check_line(6, "size", 0, 99, 0);
}

/* The next driver lacks the optional calls. */
Test(calls, that_are_missing)
{
	struct ummap_driver read_only = bare, old = bare;
	struct ummap_geom geom;
	char text[] = "0123456789";
	struct iovec iov[2] = { { text, 4 }, { text + 4, 6 } };
	uint64_t size;
	void *h = must_open(&bare, &geom);

	check(!(geom.caps & UMMAP_CAP_ASYNC));
	check(filter->writev(h, iov, 2, 246) == 0 && probe.writes == 2);
	check(memcmp(probe.data + 246, text, 10) == 0);
	check(filter->size(h, &size) == 0 && size == 256);
	check(filter->write(h, text, 10, 300) == 0);
	check(filter->size(h, &size) == 0 && size == 310);
	check(filter->flush(h, 0, 1) == 0);
	check(filter->resize(h, 1) == -EOPNOTSUPP &&
	      filter->map(h, text, 1, 0, PROT_READ) == -EOPNOTSUPP);
	check(filter->persist(h, text, 1) == 0);
	filter->close(h);
	read_trace(in_dir("t.csv"));
	check_line(0, "write", 246, 10, 0);
	/* Calls that never reached the driver have no lines. */
	check(trace.n == 6 && count_lines("map", -EOPNOTSUPP) == 0 &&
	      count_lines("resize", -EOPNOTSUPP) == 0);

	check(open_over(&bare, 5, &h, &geom) == -EINVAL);
	check(strstr(geom.why, "the driver 'bare' takes none"), "%s", geom.why);
	read_only.write = NULL;
	h = must_open(&read_only, &geom);
	check(!(geom.caps & (UMMAP_CAP_WRITE | UMMAP_CAP_GROW)));
	filter->close(h);

	/* The fields behind the end of an older table are not calls. */
	old.struct_size = offsetof(struct ummap_driver, readv);
	memset(&old.readv, 0x5a, sizeof(old) - old.struct_size);
	h = must_open(&old, &geom);
	check(filter->readv(h, iov, 2, 0) == 0 && filter->size(h, &size) == 0);
	filter->close(h);
}

Test(calls, that_fail_to_open_leave_no_file)
{
	struct ummap_geom geom;
	struct stat st;
	void *h;

	probe.open_result = -ENOENT;
	check(open_over(&full, -1, &h, &geom) == -ENOENT &&
	      strcmp(geom.why, "probe will not open") == 0);
	check(stat(in_dir("t.csv"), &st) == -1);
	probe.open_result = 0;
	check(open_over(&full, 17, &h, &geom) == 0 && probe.fd == 17);
	filter->close(h);
}

/* ---- In place ---- */

static char *mapped_at;

static int map_call(void *h, void *addr, size_t len, uint64_t off, int prot)
{
	mapped_at = addr;
	return h == &probe && len == 8192 && off == 4096 && prot == PROT_READ ? 0 : -EINVAL;
}

static int persist_call(void *h, void *addr, size_t len)
{
	return h == &probe && addr == mapped_at + 100 && len == 50 ? -EREMOTEIO : -EINVAL;
}

Test(calls, in_place)
{
	struct ummap_driver next = full;
	struct ummap_geom geom;
	char *place = (char *)0x7000000;
	void *h;

	next.map = map_call;
	next.persist = persist_call;
	h = must_open(&next, &geom);
	check(filter->map(h, place, 8192, 4096, PROT_READ) == 0);
	check(filter->persist(h, place + 100, 50) == -EREMOTEIO);
	filter->close(h);
	read_trace(in_dir("t.csv"));
	check_line(0, "map", 4096, 8192, 0);
	check_line(1, "persist", 4196, 50, -EREMOTEIO);
}

/* ---- Asynchronous calls, over a queue that completes the last request first ---- */

#define QUEUE 1000

static struct {
	struct ummap_io *io[QUEUE];
	unsigned n, most;   /* requests in flight, and their limit for a call */
	int refuse;
} queue;

static int submit_call(void *h, struct ummap_io **io, unsigned n)
{
	unsigned k = 0;

	check(h == &probe);
	if (queue.refuse)
		return queue.refuse;
	while (k < n && k < queue.most && queue.n < QUEUE)
		queue.io[queue.n++] = io[k++];
	return (int)k;
}

static int reap_call(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	unsigned k = 0;

	check(h == &probe && queue.n >= min);
	while (k < max && queue.n > 0) {
		struct ummap_io *io = queue.io[--queue.n];

		memset(io->buf, 'x', io->len);
		io->res = io->off % 3 == 0 ? -EIO : 0;
		done[k++] = io;
	}
	return (int)k;
}

static struct ummap_driver queued(void)
{
	struct ummap_driver next = full;

	next.submit = submit_call;
	next.reap = reap_call;
	queue.most = QUEUE;
	return next;
}

/* However many requests the driver accepts in a call, each returns as it was submitted. */
static void run_queue(void *h, struct ummap_io *io, unsigned n, char *buf)
{
	struct ummap_io *list[QUEUE], *done[7];
	unsigned sent = 0, back = 0;

	for (unsigned i = 0; i < n; i++) {
		io[i] = (struct ummap_io){
			.op = i % 2, .buf = buf + i, .len = 1, .off = i, .res = 1, .owner = &io[i]
		};
		list[i] = &io[i];
	}
	while (back < n) {
		int took = sent < n ? filter->submit(h, list + sent, n - sent) : 0, got;

		check(took >= 0);
		sent += (unsigned)took;
		got = filter->reap(h, done, 7, took == 0);
		check(got >= 0 && (took > 0 || got > 0));
		for (int i = 0; i < got; i++) {
			check(done[i] >= io && done[i] < io + n && done[i]->owner == done[i]);
			check(done[i]->res == (done[i]->off % 3 == 0 ? -EIO : 0), "%d",
			      done[i]->res);
		}
		back += (unsigned)got;
	}
}

Test(async, passes_through_whatever_is_taken)
{
	static const unsigned steps[] = { QUEUE, 1, 3, 64 };
	struct ummap_driver next = queued();
	struct ummap_io io[QUEUE];
	struct ummap_geom geom;
	char buf[QUEUE] = "";
	void *h = must_open(&next, &geom);
	uint64_t seen = 0;

	check(geom.caps & UMMAP_CAP_ASYNC);
	for (int i = 0; i < 4; i++) {
		queue.most = steps[i];
		run_queue(h, io, QUEUE, buf);
	}
	filter->close(h);
	for (int i = 0; i < QUEUE; i++)
		check(buf[i] == 'x');
	read_trace(in_dir("t.csv"));
	check(trace.n == 4 * QUEUE, "%zu", trace.n);
	check(count_lines("read", -EIO) + count_lines("read", 0) == 2 * QUEUE);
	check(count_lines("read", -EIO) + count_lines("write", -EIO) == 4 * 334);
	for (size_t i = 0; i < trace.n; i++) {
		check((trace.line[i].off % 2 == 1) == (strcmp(trace.line[i].op, "write") == 0));
		check(trace.line[i].len == 1 && trace.line[i].off < QUEUE);
		seen += trace.line[i].off;
	}
	check(seen == 4 * (QUEUE * (QUEUE - 1) / 2));
}

/* The filter has no room for more requests in flight, and accepts them later. */
Test(async, is_full_at_some_point)
{
	struct ummap_driver next = queued();
	struct ummap_io io[QUEUE], *list[QUEUE], *done[QUEUE];
	struct ummap_geom geom;
	char byte;
	void *h = must_open(&next, &geom);
	int sent = 0, took;

	for (int i = 0; i < QUEUE; i++) {
		io[i] = (struct ummap_io){ .buf = &byte, .len = 1, .off = 1 };
		list[i] = &io[i];
	}
	while ((took = filter->submit(h, list + sent, QUEUE - sent)) > 0)
		sent += took;
	check(took == 0 && sent > 64 && sent < QUEUE && (int)queue.n == sent, "%d", sent);
	check(filter->reap(h, done, 1, 1) == 1);
	check(filter->submit(h, list + sent, QUEUE - sent) == 1);
	check(filter->reap(h, done, QUEUE, 1) == sent);
	filter->close(h);
}

Test(async, is_refused)
{
	struct ummap_driver next = queued();
	struct ummap_io io = { .op = UMMAP_IO_WRITE, .len = 5, .off = 9 }, *list[1] = { &io };
	struct ummap_geom geom;
	void *h = must_open(&next, &geom);

	queue.refuse = -ENXIO;
	for (int i = 0; i < QUEUE; i++)
		check(filter->submit(h, list, 1) == -ENXIO);
	queue.refuse = 0;
	check(filter->submit(h, list, 1) == 1);
	filter->close(h);
	read_trace(in_dir("t.csv"));
	check(trace.n == QUEUE && count_lines("write", -ENXIO) == QUEUE);
	check_line(0, "write", 9, 5, -ENXIO);
}
