/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of the whole store: its end, its growth, and when other handles see a write. */
#include "conform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ummap.h>
#include <unistd.h>

static void expect_size(struct handle *h, uint64_t size, const char *when)
{
	expect(handle_size(h) == size, "%s the store has %ju bytes and should have %ju", when,
	       (uintmax_t)handle_size(h), (uintmax_t)size);
}

/* Another handle must see the same contents, unless it has another store. */
static void expect_size_elsewhere(uint64_t size, const char *when)
{
	struct handle h;

	if (options.forgets || options.alone)
		return;
	handle_open_readonly(&h);
	expect(h.geom.size == size, "%s a new handle says %ju bytes and should say %ju", when,
	       (uintmax_t)h.geom.size, (uintmax_t)size);
	handle_close(&h);
}

static void expect_bytes(struct handle *h, uint64_t off, const void *want, size_t len,
			 const char *what)
{
	unsigned char *got = malloc(len);

	handle_read(h, got, len, off);
	for (size_t i = 0; i < len; i++)
		expect(got[i] == ((const unsigned char *)want)[i],
		       "%s: byte %ju is 0x%02x and should be 0x%02x", what, (uintmax_t)(off + i),
		       got[i], ((const unsigned char *)want)[i]);
	free(got);
}

static void expect_zeros(struct handle *h, uint64_t off, size_t len, const char *what)
{
	void *zeros = calloc(1, len);

	expect_bytes(h, off, zeros, len, what);
	free(zeros);
}

static void need_bytes(void)
{
	if (options.swallows)
		skip("the store keeps nothing");
}

void check_last_byte(void)
{
	struct handle h;
	unsigned char byte = 0x5c, got = 0;
	uint64_t end;

	handle_fill_writable(&h);
	end = handle_size(&h);
	doing("a write of the last byte, at %ju", (uintmax_t)end - 1);
	handle_write(&h, &byte, 1, end - 1);
	expect_size(&h, end, "after a write of its last byte");
	handle_read(&h, &got, 1, end - 1);
	expect(options.swallows || got == byte, "the last byte is 0x%02x and should be 0x%02x", got,
	       byte);
	if (end == facts->size)
		shadow_write(end - 1, &byte, 1);
	shadow_compare_all(&h, "after a write of the last byte");
	handle_close(&h);
}

/* Writes len bytes at `gap` bytes past the end. The store must then end with the last byte. */
static void grow_once(struct handle *h, size_t gap, size_t len)
{
	unsigned char *buf = malloc(len);
	uint64_t end = handle_size(h), now = end + gap + len;

	random_fill(buf, len);
	doing("a write of %zu bytes, %zu past the end, to a store of %ju", len, gap,
	      (uintmax_t)end);
	handle_write(h, buf, len, end + gap);
	expect_size(h, now, verdict->doing);
	if (gap > 0)
		expect_zeros(h, end, gap, "the gap between the old end and what was written");
	expect_bytes(h, end + gap, buf, len, "what was written past the end");
	expect_zeros(h, now, 10000, "past the new end");
	free(buf);
}

void check_grow(void)
{
	static const size_t gaps[] = { 0, 1, 511, 4096, 100000 };
	static const size_t lens[] = { 1, 3, 512, 4096, 5000, 70001 };
	struct handle h;

	handle_fill_writable(&h);
	need_bytes();
	if (!handle_can(&h, UMMAP_CAP_GROW))
		skip("the store cannot grow");
	for (size_t g = 0; g < COUNT(gaps); g++) {
		for (size_t l = 0; l < COUNT(lens); l++)
			grow_once(&h, gaps[g], lens[l]);
	}
	shadow_compare_all(&h, "after growing");
	handle_flush(&h);
	expect_size_elsewhere(handle_size(&h), "after growing and flush");
	handle_close(&h);
}

void check_no_grow(void)
{
	struct handle h;
	unsigned char buf[5000];
	uint64_t end;

	handle_fill_writable(&h);
	if (handle_can(&h, UMMAP_CAP_GROW))
		skip("the store can grow");
	end = handle_size(&h);
	random_fill(buf, sizeof(buf));
	for (size_t gap = 0; gap <= 100000; gap += 50000) {
		doing("a write %zu bytes past the end of a store that cannot grow", gap);
		expect(h.driver.write(h.h, buf, sizeof(buf), end + gap) < 0, "%s gives no error",
		       verdict->doing);
		expect_size(&h, end, verdict->doing);
	}
	expect_zeros(&h, end, sizeof(buf), "past the end, after writes that were refused");
	shadow_compare_all(&h, "after writes past the end");
	doing("a write across the end of a store that cannot grow");
	expect(h.driver.write(h.h, buf, sizeof(buf), end - 100) < 0, "%s gives no error",
	       verdict->doing);
	expect_size(&h, end, verdict->doing);
	expect_zeros(&h, end, sizeof(buf), "past the end, after a write across it");
	handle_close(&h);
}

static void resize_to(struct handle *h, uint64_t size)
{
	int err;

	doing("resize to %ju bytes", (uintmax_t)size);
	err = h->driver.resize(h->h, size);
	expect(err == 0, "%s: %s", verdict->doing, error_name(err));
	expect_size(h, size, verdict->doing);
}

void check_resize(void)
{
	struct handle h;
	uint64_t end;
	size_t half = facts->size / 2 + 1;

	handle_fill_writable(&h);
	if (!h.driver.resize)
		skip("resize is NULL");
	need_bytes();
	if (options.overwrite)
		skip("a store that was there before is not cut");
	end = handle_size(&h);
	if (h.driver.resize(h.h, end) < 0)
		skip("this store refuses resize");
	if (h.driver.resize(h.h, half) == -EOPNOTSUPP)
		skip("this store cannot be cut");
	resize_to(&h, half);
	expect_zeros(&h, half, 10000, "past the end, after the store became shorter");
	expect_bytes(&h, 0, shadow, half, "what is left of a store that became shorter");
	resize_to(&h, end);
	expect_bytes(&h, 0, shadow, half, "after the store became longer again");
	expect_zeros(&h, half, end - half, "after the store became longer again");
	expect_size_elsewhere(end, "after resize");
	handle_close(&h);
}

/* All bytes between off and the offset that the call data returns must be zeros. */
static bool ask_data(struct handle *h, size_t off)
{
	uint64_t begin = 0, end = 0;
	int err;

	doing("data from %zu on", off);
	err = h->driver.data(h->h, off, &begin, &end);
	if (err == -EOPNOTSUPP)
		return false;
	expect(err == 0, "%s: %s", verdict->doing, error_name(err));
	expect(begin >= off && end >= begin, "%s gives the range from %ju to %ju", verdict->doing,
	       (uintmax_t)begin, (uintmax_t)end);
	for (size_t i = off; i < begin && i < facts->size; i++)
		expect(shadow[i] == 0, "%s begin at %ju, but 0x%02x was written to %zu",
		       verdict->doing, (uintmax_t)begin, shadow[i], i);
	return true;
}

void check_data(void)
{
	struct handle h, other;
	unsigned char buf[3 * PAGE];

	handle_fill_writable(&h);
	if (!h.driver.data)
		skip("data is NULL");
	if (!ask_data(&h, 0))
		skip("this store cannot say where it has data");
	need_bytes();
	if (!options.overwrite && h.driver.resize && h.driver.resize(h.h, 0) == 0) {
		resize_to(&h, facts->size);
		memset(shadow, 0, facts->size);
	}
	if (!options.alone)
		handle_open(&other);
	for (int i = 0; i < 200; i++) {
		size_t len = 1 + random_below(sizeof(buf)), off = random_below(facts->size - len);

		ask_data(&h, 0);
		memset(buf, 1 + (int)random_below(255), len);
		handle_write(options.alone || i % 2 ? &h : &other, buf, len, off);
		shadow_write(off, buf, len);
		ask_data(&h, off);
		ask_data(&h, random_below(facts->size));
	}
	ask_data(&h, facts->size);
	shadow_compare_all(&h, "after questions about data");
	if (!options.alone)
		handle_close(&other);
	handle_close(&h);
}

void check_flush(void)
{
	struct handle h;
	int err = 0;

	handle_open(&h);
	if (!facts->writable || !h.driver.flush)
		skip(facts->writable ? "flush is NULL" : "the store can only be read");
	handle_flush(&h);
	handle_close(&h);
	handle_fill(&h);
	handle_flush(&h);
	handle_flush(&h);
	for (size_t i = 0; i < 20 && !err; i++) {
		uint64_t off = random_below(facts->size), len = 1 + random_below(facts->size);

		doing("flush of %ju bytes at %ju", (uintmax_t)len, (uintmax_t)off);
		err = h.driver.flush(h.h, off, len);
		expect(err == 0, "%s: %s", verdict->doing, error_name(err));
	}
	shadow_compare_all(&h, "after flush");
	handle_close(&h);
}

static void need_memory(void)
{
	if (options.forgets)
		skip("the store lives no longer than its handle");
}

void check_reopen(void)
{
	struct handle h;

	need_memory();
	handle_fill_writable(&h);
	handle_flush(&h);
	handle_close(&h);
	handle_open(&h);
	shadow_compare_all(&h, "by a new handle, after flush and close");
	handle_close(&h);
	handle_open_readonly(&h);
	shadow_compare_all(&h, "by a new handle for reading");
	handle_close(&h);
}

/* The reader has read these bytes before, so a driver with a cache may still have them. */
static void write_and_read(struct handle *writer, struct handle *reader, size_t off, size_t len)
{
	unsigned char *buf = malloc(len);

	doing("a read by one handle of %zu bytes at %zu that another one has written and flushed",
	      len, off);
	handle_read(reader, buf, len, off);
	random_fill(buf, len);
	handle_write(writer, buf, len, off);
	shadow_write(off, buf, len);
	handle_flush(writer);
	handle_read(reader, buf, len, off);
	shadow_compare(buf, len, off, verdict->doing);
	free(buf);
}

void check_second_handle(void)
{
	struct handle a, b;

	handle_need_two();
	need_memory();
	handle_fill_writable(&a);
	handle_flush(&a);
	handle_open(&b);
	shadow_compare_all(&b, "by a second handle, after flush");
	for (int i = 0; i < 100; i++) {
		size_t len = 1 + random_below(i % 4 < 2 ? 9000 : 1000);
		/* Half of the transfers hit the same few pages repeatedly. */
		size_t off = random_below(i % 4 < 2 ? facts->size - len : 4 * PAGE);

		write_and_read(i % 2 ? &a : &b, i % 2 ? &b : &a, off, len);
	}
	handle_close(&a);
	shadow_compare_all(&b, "by a second handle, when the first one was closed");
	handle_close(&b);
}

/* ---- A new process, which has inherited no handle ---- */

/* Keeps a descriptor open across exec, and writes its number. */
static void pass_on(int fd, char *text, size_t size)
{
	fcntl(fd, F_SETFD, 0);
	snprintf(text, size, "%d", fd);
}

void check_new_process(void)
{
	struct handle h;
	char contents[16], judgement[16], size[32];
	int fd = memfd_create("contents", MFD_CLOEXEC);
	pid_t child;

	handle_need_two();
	need_memory();
	handle_fill_writable(&h);
	expect(write(fd, shadow, facts->size) == (ssize_t)facts->size,
	       "no memory for a copy of the store");
	handle_flush(&h);
	doing("a new process reading the store after flush");
	child = fork_child();
	if (child == 0) {
		pass_on(fd, contents, sizeof(contents));
		pass_on(verdict_fd, judgement, sizeof(judgement));
		snprintf(size, sizeof(size), "%zu", facts->size);
		execl("/proc/self/exe", "ummap-conform", "--verify", contents, judgement, size,
		      options.uri, NULL);
		expect(false, "the checker cannot start itself: %m");
	}
	wait_for(child);
	expect(atomic_load(&verdict->outcome) == OUTCOME_OK,
	       "the process that should have read the store said nothing");
	atomic_store(&verdict->outcome, OUTCOME_NONE);
	handle_close(&h);
}

int verify_main(int contents_fd, size_t size)
{
	struct handle h;

	facts = memory(sizeof(*facts));
	facts->size = size;
	shadow = mmap(NULL, size, PROT_READ, MAP_PRIVATE, contents_fd, 0);
	expect(shadow != MAP_FAILED, "mmap: %m");
	handle_open_readonly(&h);
	shadow_compare_all(&h, "by a new process, after flush");
	handle_close(&h);
	atomic_store(&verdict->outcome, OUTCOME_OK);
	return 0;
}
