/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter sum: keeps checksums of a store's blocks in a file beside the store, and fails reads
 * of blocks that differ. All bytes pass unchanged. sum.h specifies the file and its orders. This
 * file has the transfers, and sum_open.c the table of the driver.
 */
#include "sum.h"

#include "common/cursor.h"
#include "common/minmax.h"

#include <errno.h>

#define RUN (SUM_WINDOW / SUM_BLOCK)       /* blocks of a window */

/* ---- Blocks and entries ---- */

static uint64_t entry_at(uint64_t off)
{
	return SUM_ENTRIES_AT + off / SUM_BLOCK * sizeof(uint64_t);
}

static void make_entries(const struct sum *s, const char *bytes, size_t len, uint64_t *entries)
{
	for (size_t at = 0; at < len; at += SUM_BLOCK)
		*entries++ = overlay_sum(bytes + at) - s->zeros;
}

/* Compares whole blocks of one window with their entries. Returns 0; 1 if the block at *bad
 * differs; or a negative errno value. */
static int compare(struct sum *s, const char *bytes, size_t len, uint64_t off, uint64_t *bad)
{
	uint64_t found[RUN], entries[RUN];
	int err = side_read(&s->file, entries, len / SUM_BLOCK * sizeof(*entries), entry_at(off));

	if (err)
		return err;
	make_entries(s, bytes, len, found);
	for (size_t k = 0; k < len / SUM_BLOCK; k++) {
		*bad = off + k * SUM_BLOCK;
		if (found[k] != entries[k] && !sum_is_in_doubt(s, *bad))
			return 1;
	}
	return 0;
}

/* Reads whole blocks of one window, whose draft this thread has, and compares them. */
static int read_blocks(struct sum *s, char *bytes, size_t len, uint64_t off)
{
	uint64_t bad;
	int err = behind_read(&s->store, bytes, len, off);

	if (err)
		return err;
	err = compare(s, bytes, len, off, &bad);
	if (err < 0)
		notice_give(&s->notice, "sum+: cannot read the checksums in '%.150s': %s",
			    s->file.path, strerror(-err));
	if (err <= 0)
		return err;
	notice_give(&s->notice, "sum+: cannot read block %ju (4 KiB at byte %ju) of %.150s: it "
		    "differs from its checksum in '%.150s'", (uintmax_t)(bad / SUM_BLOCK),
		    (uintmax_t)bad, s->name, s->file.path);
	return -EIO;
}

/* Compares whole blocks that were read. If one differs, it may have been written meanwhile. */
static int verify(struct sum *s, char *bytes, size_t len, uint64_t off)
{
	int err = 0;

	for (size_t n; len > 0 && !err; bytes += n, off += n, len -= n) {
		struct sum_draft *d;
		uint64_t bad;

		n = min_size(len, SUM_WINDOW - off % SUM_WINDOW);
		if (compare(s, bytes, n, off, &bad) == 0)
			continue;
		d = sum_take_draft(s, off);
		err = read_blocks(s, bytes, n, off);
		sum_release_draft(s, d);
	}
	return err;
}

int sum_renew_entries(struct sum *s, struct sum_draft *d, size_t len, uint64_t off, bool is_new,
		      uint64_t *changed)
{
	uint64_t before[RUN], now[RUN], n_changed = 0;
	size_t n = len / SUM_BLOCK;
	int err = behind_read(&s->store, d->bytes, len, off);

	if (!err)
		err = side_read(&s->file, before, n * sizeof(*before), entry_at(off));
	if (err)
		return err;
	make_entries(s, d->bytes, len, now);
	for (size_t k = 0; k < n; k++)
		n_changed += now[k] != before[k];
	*changed += n_changed;
	if (is_new && !n_changed)
		return 0;
	return side_write(&s->file, now, n * sizeof(*now), entry_at(off));
}

/* ---- Transfers ---- */

/* The bytes of a transfer in one window. */
struct part {
	struct sum_draft *d;       /* draft of the window */
	size_t from, end;          /* position in the window */
	size_t first, last;        /* the same of its whole blocks */
	uint64_t at;               /* offset of the first block in the store */
};

static struct part take_part(struct sum *s, const struct cursor *c)
{
	struct part p = { .d = sum_take_draft(s, c->off), .from = c->off % SUM_WINDOW };

	p.end = (size_t)min_u64(SUM_WINDOW, p.from + (c->end - c->off));
	p.first = p.from - p.from % SUM_BLOCK;
	p.last = (p.end + SUM_BLOCK - 1) / SUM_BLOCK * SUM_BLOCK;
	p.at = c->off - c->off % SUM_BLOCK;
	return p;
}

static int read_part(struct sum *s, struct cursor *c)
{
	struct part p = take_part(s, c);
	int err = read_blocks(s, p.d->bytes + p.first, p.last - p.first, p.at);

	if (!err)
		cursor_copy(c, p.d->bytes + p.from, p.end - p.from, true);
	sum_release_draft(s, p.d);
	return err;
}

/* Fills the draft with the bytes that are written, and the rest of the first and the last block. */
static int fill_draft(struct sum *s, const struct part *p, struct cursor *c)
{
	bool reads_first = p->from > p->first;
	size_t last = p->last - SUM_BLOCK;
	char *bytes = p->d->bytes;
	int err = 0;

	if (reads_first)
		err = read_blocks(s, bytes + p->first, SUM_BLOCK, p->at);
	if (!err && p->end < p->last && !(reads_first && last == p->first))
		err = read_blocks(s, bytes + last, SUM_BLOCK, p->at + last - p->first);
	if (!err)
		cursor_copy(c, bytes + p->from, p->end - p->from, false);
	return err;
}

static int write_draft(struct sum *s, const struct part *p)
{
	size_t len = p->last - p->first;
	uint64_t entries[RUN], changed = 0;
	int err, renewing;

	make_entries(s, p->d->bytes + p->first, len, entries);
	err = side_write(&s->file, entries, len / SUM_BLOCK * sizeof(*entries), entry_at(p->at));
	if (!err)
		err = behind_write(&s->store, p->d->bytes + p->from, p->end - p->from,
				   p->at + p->from - p->first);
	/* A part of the bytes may have been written. */
	renewing = err ? sum_renew_entries(s, p->d, len, p->at, false, &changed) : 0;
	if (renewing)
		sum_keep_doubt(s, renewing);
	return err;
}

static int write_part(struct sum *s, struct cursor *c)
{
	struct part p = take_part(s, c);
	int err = sum_begin_write(s, p.d, p.at);

	if (!err)
		err = fill_draft(s, &p, c);
	if (!err)
		err = write_draft(s, &p);
	sum_release_draft(s, p.d);
	return err;
}

static bool is_whole(uint64_t off, uint64_t len)
{
	return (off | len) % SUM_BLOCK == 0;
}

int sum_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cursor c = cursor_begin(iov, n, off);
	bool whole = is_whole(off, 0);
	struct sum *s = h;
	int err;

	for (int i = 0; i < n; i++)
		whole &= is_whole(off, iov[i].iov_len);
	err = whole ? behind_readv(&s->store, iov, n, off) : 0;
	for (int i = 0; whole && i < n && !err; off += iov[i++].iov_len)
		err = verify(s, iov[i].iov_base, iov[i].iov_len, off);
	while (!whole && c.off < c.end && !err)
		err = read_part(s, &c);
	return err;
}

int sum_read(void *h, void *buf, size_t len, uint64_t off)
{
	return sum_readv(h, &(struct iovec){ buf, len }, 1, off);
}

int sum_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cursor c = cursor_begin(iov, n, off);
	struct sum *s = h;
	int err = s->writable ? 0 : -EBADF;

	while (c.off < c.end && !err)
		err = write_part(s, &c);
	return err;
}

int sum_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return sum_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

int sum_flush(void *h, uint64_t off, uint64_t len)
{
	struct sum *s = h;
	int err;

	if (s->writable && ++s->flushes % SUM_CLEAR_FLUSHES == 0)
		return sum_settle(s, false);
	err = behind_flush(&s->store, off, len);
	if (err < 0)
		sum_keep_doubt(s, err);
	return err;
}

/* The bytes between the old end and the new one are zeros, and so are their entries. But the facts
 * about the store change, which must not count as a write without the filter (order 5). */
int sum_resize(void *h, uint64_t size)
{
	struct sum *s = h;
	struct sum_draft *d;
	uint64_t now;
	int err = behind_size(&s->store, &now);

	if (err || size <= now || !s->writable)
		return err ? err : size == now ? 0 : -EOPNOTSUPP;
	d = sum_take_draft(s, size - 1);
	err = sum_begin_write(s, d, size - 1);
	if (!err)
		err = behind_resize(&s->store, size);
	sum_release_draft(s, d);
	return err;
}

/* ---- Asynchronous requests ---- */

static bool is_for_store(void *h, const struct ummap_io *io)
{
	(void)h;
	return io->op == UMMAP_IO_READ && is_whole(io->off, io->len);
}

int sum_submit(void *h, struct ummap_io **io, unsigned n)
{
	static const struct ummap_driver own = { .read = sum_read, .write = sum_write };
	struct sum *s = h;

	return held_submit(s->held, &s->store, &own, s, is_for_store, io, n);
}

int sum_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct sum *s = h;
	int n = held_reap(s->held, &s->store, done, max, min);

	for (int i = 0; i < n; i++) {
		if (is_for_store(s, done[i]) && !done[i]->res)
			done[i]->res = verify(s, done[i]->buf, done[i]->len, done[i]->off);
	}
	return n;
}
