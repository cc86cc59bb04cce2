/* SPDX-License-Identifier: BSD-3-Clause */
/* How far a transfer of several pieces of memory has come, for filters that cut it. */
#ifndef DRIVERS_PIECES_H
#define DRIVERS_PIECES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct cursor {
	const struct iovec *piece;
	int n;                 /* pieces left, `piece` being the first */
	size_t skip;           /* bytes of it that are done */
	uint64_t off, end;     /* in the store */
};

/* Goes on by `bytes`, and over empty pieces. */
static inline void cursor_advance(struct cursor *c, size_t bytes)
{
	c->off += bytes;
	c->skip += bytes;
	while (c->n > 0 && c->skip >= c->piece->iov_len) {
		c->skip -= c->piece->iov_len;
		c->piece++;
		c->n--;
	}
}

static inline struct cursor cursor_begin(const struct iovec *iov, int n, uint64_t off)
{
	struct cursor c = { .piece = iov, .n = n, .off = off, .end = off };

	for (int i = 0; i < n; i++)
		c.end += iov[i].iov_len;
	cursor_advance(&c, 0);
	return c;
}

/* The next bytes, at most `bytes` and in at most `most` pieces, without going on; returns how many. */
static inline size_t cursor_slice(const struct cursor *c, size_t bytes, struct iovec *iov, int most, int *n)
{
	size_t skip = c->skip, done = 0;

	for (*n = 0; *n < c->n && *n < most && done < bytes; (*n)++, skip = 0) {
		size_t len = c->piece[*n].iov_len - skip;

		len = len < bytes - done ? len : bytes - done;
		iov[*n] = (struct iovec){ (char *)c->piece[*n].iov_base + skip, len };
		done += len;
	}
	return done;
}

#endif
