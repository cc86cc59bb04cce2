/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes what of a segment differs from its twin, each run of bytes by a request of its own: nothing between them is
 * touched. Runs on the stacks of signal handlers, but for what is busy.
 */
#include "paging/twin.h"

#include <string.h>

/* Bytes of a segment that changes meanwhile, which are on the stack for the while. */
#define BUSY_PIECE 512

/* The bytes of segment i from `at` on that were stored, as far as there is room: how many requests. */
static unsigned find_parts(const struct set *set, size_t i, const char *buf, size_t *at, struct ummap_io *io, unsigned room)
{
	uint64_t begin = set->targets[set->current].offset + ((uint64_t)i << set->shift);
	unsigned n = 0;
	size_t len;

	while (n < room && (len = twin_differs(set, i, buf, at))) {
		io[n++] = (struct ummap_io){ .op = UMMAP_IO_WRITE, .buf = (char *)(uintptr_t)buf + *at, .len = len,
					     .off = begin + *at };
		*at += len;
	}
	return n;
}

/* A piece of a part that changes while it is written: it leaves by way of the twin, which then has what was written. */
static int write_piece(struct set *set, size_t i, const char *buf, size_t at, size_t len)
{
	const struct target *t = &set->targets[set->current];
	char *twin = twin_home(set, i) + at, before[BUSY_PIECE];
	struct ummap_io io = { .op = UMMAP_IO_WRITE, .buf = twin, .len = len,
			       .off = t->offset + ((uint64_t)i << set->shift) + at };
	int err;

	memcpy(before, twin, len);
	memcpy(twin, buf + at, len);
	err = io_run(t->store, &io, 1, false, &set->stat.io);
	if (err) {
		/* It still differs, in case it does not change again. */
		memcpy(twin, before, len);
		twin_unsure(set, i, at, len);
	} else if (set->unsure) {
		twin_sure(set, i, at, len);
	}
	return err;
}

long twin_write_busy(struct set *set, size_t i, const char *buf)
{
	size_t at = 0, end = 0, len;
	int err = 0;

	while (!err && (len = twin_differs(set, i, buf, &at))) {
		len = min_size(len, BUSY_PIECE);
		err = write_piece(set, i, buf, at, len);
		end = at += len;
	}
	return err ? err : (long)end;
}

/* Some of these have failed: what was written the twin has from now on, what was not is unsure. */
static void note_failure(struct set *set, size_t i, const struct ummap_io *io, unsigned n)
{
	uint64_t begin = set->targets[set->current].offset + ((uint64_t)i << set->shift);

	for (unsigned k = 0; k < n; k++) {
		size_t at = (size_t)(io[k].off - begin);

		if (io[k].res) {
			twin_unsure(set, i, at, io[k].len);
			continue;
		}
		memcpy(twin_home(set, i) + at, io[k].buf, io[k].len);
		if (set->unsure)
			twin_sure(set, i, at, io[k].len);
	}
}

long twin_write(struct set *set, size_t i, const char *buf, struct ummap_io *io, unsigned room)
{
	size_t at = 0, from, end = 0;
	int err = 0;
	unsigned n;

	while (!err) {
		from = end;
		n = find_parts(set, i, buf, &at, io, room);
		if (!n)
			break;
		end = at;
		err = io_run(set->targets[set->current].store, io, n, false, &set->stat.io);
	}
	if (!err)
		return (long)end;
	/* All before these were written. */
	memcpy(twin_home(set, i), buf, from);
	if (set->unsure)
		twin_sure(set, i, 0, from);
	note_failure(set, i, io, n);
	return err;
}
