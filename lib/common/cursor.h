/* SPDX-License-Identifier: BSD-3-Clause */
/* The position of a transfer between a range of a store and several pieces of memory. */
#ifndef COMMON_CURSOR_H
#define COMMON_CURSOR_H

#include "common/minmax.h"

#include <stdbool.h>
#include <string.h>
#include <sys/uio.h>

struct cursor {
	const struct iovec *piece; /* current piece */
	int n;                     /* pieces left, including the current one */
	size_t skip;               /* bytes of the current piece that have been transferred */
	uint64_t off, end;         /* current offset and end of the range in the store */
};

/* Moves forward by `bytes`, and past empty pieces. */
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

/*
 * Fills `iov` with the next bytes: at most `max_bytes`, in at most `max_pieces` pieces. Stores the
 * number of pieces in *n and returns the number of bytes. The cursor does not move.
 */
static inline size_t cursor_slice(const struct cursor *c, size_t max_bytes, struct iovec *iov,
				  int max_pieces, int *n)
{
	size_t skip = c->skip, bytes = 0;

	for (*n = 0; *n < c->n && *n < max_pieces && bytes < max_bytes; (*n)++, skip = 0) {
		size_t len = min_size(c->piece[*n].iov_len - skip, max_bytes - bytes);

		iov[*n] = (struct iovec){ (char *)c->piece[*n].iov_base + skip, len };
		bytes += len;
	}
	return bytes;
}

/* Copies the next bytes between the pieces and a buffer, and moves forward past them. */
static inline void cursor_copy(struct cursor *c, char *buf, size_t bytes, bool to_pieces)
{
	for (size_t len; bytes > 0; bytes -= len, buf += len) {
		char *piece = (char *)c->piece->iov_base + c->skip;

		len = min_size(c->piece->iov_len - c->skip, bytes);
		memcpy(to_pieces ? piece : buf, to_pieces ? buf : piece, len);
		cursor_advance(c, len);
	}
}

#endif
