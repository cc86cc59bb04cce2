/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of reading and writing: offset, length and memory at every alignment that can
 * matter (words, sectors, pages), in one piece and in several. Bytes before and after the memory of
 * a read, and before and after the written range, must not change.
 */
#include "conform.h"

#include <string.h>

#define GUARD 64
#define UNTOUCHED 0xa5
#define LEN_MAX (160 * KIB)
#define PIECES_MAX 100
#define PIECE_MAX 3000

static const size_t offsets[] = { 0, 1, 7, 8, 511, 512, 513, 4095, 4096, 4097, 8192, 12345 };
static const size_t lengths[] = { 1,    2,    8,    511,   512,   513,    4095,
				  4096, 4097, 8192, 12289, 65537, 131072, LEN_MAX };
static const size_t shifts[] = { 0, 1, 8, 512 };

/* A transfer with an offset, length and alignment of the lists, moved by random whole pages. */
struct transfer {
	size_t off, len;
	unsigned char *buf;
};

static unsigned char *arena;

static void choose(struct transfer *t, size_t o, size_t l, size_t s)
{
	size_t room;

	if (!arena)
		arena = memory(2 * PAGE + LEN_MAX + PAGE);
	t->len = lengths[l] < facts->size / 2 ? lengths[l] : facts->size / 2;
	t->off = offsets[o];
	room = facts->size - t->len;
	t->off = t->off > room ? room : t->off + random_below((room - t->off) / PAGE + 1) * PAGE;
	t->buf = arena + PAGE + shifts[s];
	memset(t->buf - GUARD, UNTOUCHED, t->len + 2 * GUARD);
}

static void check_guards(const unsigned char *buf, size_t len)
{
	for (size_t i = 0; i < GUARD; i++)
		expect(buf[-1 - (ssize_t)i] == UNTOUCHED && buf[len + i] == UNTOUCHED,
		       "%s changes memory beside the buffer", verdict->doing);
}

/* Calls fn for all combinations of the lists. */
static void for_all(void (*fn)(struct handle *h, struct transfer *t), struct handle *h,
		    const char *name)
{
	struct transfer t;

	for (size_t o = 0; o < COUNT(offsets); o++) {
		for (size_t l = 0; l < COUNT(lengths); l++) {
			for (size_t s = 0; s < COUNT(shifts); s++) {
				choose(&t, o, l, s);
				doing("a %s of %zu bytes at %zu, memory %zu from a page", name,
				      t.len, t.off, shifts[s]);
				fn(h, &t);
			}
		}
	}
}

static void read_once(struct handle *h, struct transfer *t)
{
	handle_read(h, t->buf, t->len, t->off);
	check_guards(t->buf, t->len);
	shadow_compare(t->buf, t->len, t->off, verdict->doing);
}

void check_read(void)
{
	struct handle h;

	handle_fill(&h);
	for_all(read_once, &h, "read");
	handle_close(&h);
}

static void write_once(struct handle *h, struct transfer *t)
{
	static unsigned char *back;
	size_t from = t->off < GUARD ? 0 : t->off - GUARD;
	size_t to = t->off + t->len + GUARD < facts->size ? t->off + t->len + GUARD : facts->size;

	if (!back)
		back = memory(LEN_MAX + 2 * GUARD);
	random_fill(t->buf, t->len);
	handle_write(h, t->buf, t->len, t->off);
	shadow_write(t->off, t->buf, t->len);
	handle_read(h, back, to - from, from);
	shadow_compare(back, to - from, from, verdict->doing);
}

void check_write(void)
{
	struct handle h;

	handle_fill_writable(&h);
	for_all(write_once, &h, "write");
	shadow_compare_all(&h, "after all the writes");
	handle_close(&h);
}

/* ---- The end of the store ---- */

static void read_past(struct handle *h, uint64_t end, uint64_t off, size_t len)
{
	unsigned char *buf = arena + PAGE + 1;
	uint64_t known = end < facts->size ? end : facts->size;

	doing("a read of %zu bytes at %ju of a store of %ju", len, (uintmax_t)off, (uintmax_t)end);
	memset(buf - GUARD, UNTOUCHED, len + 2 * GUARD);
	handle_read(h, buf, len, off);
	check_guards(buf, len);
	for (size_t i = 0; i < len; i++) {
		if (off + i < known)
			shadow_compare(buf + i, 1, off + i, verdict->doing);
		else
			expect(off + i < end || buf[i] == 0,
			       "%s: byte %ju, past the end, is 0x%02x and should be 0",
			       verdict->doing, (uintmax_t)(off + i), buf[i]);
	}
}

void check_read_end(void)
{
	static const size_t before[] = { 0, 1, 7, 512, 4095, 4096, 5000 };
	static const size_t lens[] = { 1, 8, 513, 4096, 8192, 20000 };
	struct handle h;
	uint64_t end;

	handle_fill(&h);
	arena = memory(2 * PAGE + LEN_MAX);
	end = handle_size(&h);
	for (size_t b = 0; b < COUNT(before); b++) {
		for (size_t l = 0; l < COUNT(lens); l++) {
			read_past(&h, end, end - before[b], lens[l]);
			read_past(&h, end, end + before[b] * 1000, lens[l]);
		}
	}
	read_past(&h, end, end + ((uint64_t)1 << 40), 4096);
	expect(handle_size(&h) == end, "reading past the end has changed the size from %ju to %ju",
	       (uintmax_t)end, (uintmax_t)handle_size(&h));
	handle_close(&h);
}

/* ---- Several pieces ---- */

/* Cuts memory into n pieces of odd sizes, with gaps between them. Returns the sum of their bytes.
 */
static size_t cut(struct iovec *iov, int n, bool aligned)
{
	unsigned char *at = arena + PAGE;
	size_t sum = 0;

	memset(arena, UNTOUCHED, 2 * PAGE + PIECES_MAX * (2 * PAGE));
	for (int i = 0; i < n; i++) {
		iov[i].iov_len = aligned ? PAGE : 1 + random_below(PIECE_MAX);
		iov[i].iov_base = at + (aligned ? 0 : GUARD + random_below(16));
		at += aligned ? PAGE : PIECE_MAX + 3 * GUARD;
		sum += iov[i].iov_len;
	}
	return sum;
}

static int choose_pieces(struct iovec *iov, int n, bool aligned, size_t *off, const char *name)
{
	size_t len;

	arena = arena ? arena : memory(2 * PAGE + PIECES_MAX * (2 * PAGE));
	len = cut(iov, n, aligned);
	while (len > facts->size / 2)
		len -= iov[--n].iov_len;
	*off = aligned ? 0 : random_below(facts->size - len);
	doing("a %s of %d pieces, %zu bytes, at %zu", name, n, len, *off);
	return n;
}

static void readv_once(struct handle *h, int n, bool aligned)
{
	struct iovec iov[PIECES_MAX];
	size_t off;
	int err;

	n = choose_pieces(iov, n, aligned, &off, "readv");
	err = h->driver.readv(h->h, iov, n, off);
	expect(err == 0, "%s: %s", verdict->doing, error_name(err));
	for (int i = 0; i < n; off += iov[i++].iov_len) {
		shadow_compare(iov[i].iov_base, iov[i].iov_len, off, verdict->doing);
		if (!aligned)
			check_guards(iov[i].iov_base, iov[i].iov_len);
	}
}

static void writev_once(struct handle *h, int n, bool aligned)
{
	struct iovec iov[PIECES_MAX];
	size_t off, at;
	int err;

	n = choose_pieces(iov, n, aligned, &off, "writev");
	at = off;
	for (int i = 0; i < n; at += iov[i++].iov_len) {
		random_fill(iov[i].iov_base, iov[i].iov_len);
		shadow_write(at, iov[i].iov_base, iov[i].iov_len);
	}
	err = h->driver.writev(h->h, iov, n, off);
	expect(err == 0, "%s: %s", verdict->doing, error_name(err));
	shadow_compare_all(h, verdict->doing);
}

static const int counts[] = { 1, 2, 3, 16, 17, 31, 32, 33, 64, 65, PIECES_MAX };

void check_readv(void)
{
	struct handle h;

	handle_fill(&h);
	if (!h.driver.readv)
		skip("readv is NULL");
	for (size_t i = 0; i < COUNT(counts); i++) {
		readv_once(&h, counts[i], false);
		readv_once(&h, counts[i], true);
	}
	handle_close(&h);
}

void check_writev(void)
{
	struct handle h;

	handle_fill_writable(&h);
	if (!h.driver.writev)
		skip("writev is NULL");
	for (size_t i = 0; i < COUNT(counts); i++) {
		writev_once(&h, counts[i], false);
		writev_once(&h, counts[i], true);
	}
	handle_close(&h);
}
