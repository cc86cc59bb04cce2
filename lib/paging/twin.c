/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where others write to the bytes of a mapping, too, only those may be written that were stored: what a segment read of the
 * others' is old by the time that it leaves. So a segment that can be stored to has a twin, a copy from before its first
 * store, and what is written are the bytes in which the two differ: these alone, for what lies between them may be
 * somebody else's. A twin is a frame of the pool, and charged as the segment's own is.
 */
#include "paging/twin.h"

#include <string.h>

/* Bytes that are looked at in one go. */
#define STEP 64

static uint32_t *place(const struct set *set, size_t i)
{
	const struct extent *e = set_extent(set, i);

	return &e->twins[i - e->first];
}

/* The bits of segment i's bytes that are written again, whatever they are. */
static uint8_t *unsure(const struct set *set, size_t i)
{
	const struct extent *e = set_extent(set, i);

	return e->unsure + (((i - e->first) << set->shift) / 8);
}

/* What storage has of these bytes is what they were or what was to be written: if they change back, they are written, too. */
static void mark_unsure(struct set *set, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure(set, i);

	set->unsure = true;
	for (; len > 0; at++, len--)
		bits[at / 8] |= (uint8_t)(1 << at % 8);
}

/* A look first: of most segments none is unsure, and there is no memory for bits. */
static void mark_sure(struct set *set, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure(set, i);

	for (; len > 0; at++, len--) {
		if (bits[at / 8] >> at % 8 & 1)
			bits[at / 8] &= (uint8_t)~(1 << at % 8);
	}
}

bool twin_has(const struct set *set, size_t i)
{
	return set->writers && *place(set, i);
}

void twin_keep(struct set *set, size_t i, const char *buf, uint32_t frame)
{
	/* It will not have the zeros that it may have come with. */
	frame_use_blank(frame);
	memcpy(frame_home(frame), buf, set_len(set, i));
	*place(set, i) = frame + 1;
}

void twin_drop(struct set *set, size_t i)
{
	uint32_t *twin;

	if (!twin_has(set, i))
		return;
	if (set->unsure)
		mark_sure(set, i, 0, set->seg_size);
	twin = place(set, i);
	set_share(set)->bytes -= set->seg_size;
	frame_give(*twin - 1);
	*twin = 0;
}

char *twin_home(const struct set *set, size_t i)
{
	return frame_home(*place(set, i) - 1);
}

static bool is_written(const char *buf, const char *twin, const uint8_t *bits, size_t at)
{
	return buf[at] != twin[at] || (bits && bits[at / 8] >> at % 8 & 1);
}

/* Bytes from `from` on that are as in the twin: a multiple of STEP, which begins at one. */
static size_t skip_alike(const char *buf, const char *twin, const uint8_t *bits, size_t from, size_t len)
{
	static const uint8_t none[STEP / 8];

	while (from + STEP <= len && memcmp(buf + from, twin + from, STEP) == 0 &&
	       (!bits || (from % 8 == 0 && memcmp(bits + from / 8, none, sizeof(none)) == 0)))
		from += STEP;
	return from;
}

/* The next bytes in which segment i, which stands in buf, differs from its twin: how many, from *at on; 0: there are none
 * from there on. */
static size_t differs(const struct set *set, size_t i, const char *buf, size_t *at)
{
	const uint8_t *bits = set->unsure ? unsure(set, i) : NULL;
	const char *twin = twin_home(set, i);
	size_t len = set_len(set, i), from = skip_alike(buf, twin, bits, *at, len), to;

	while (from < len && !is_written(buf, twin, bits, from))
		from++;
	for (to = from; to < len && is_written(buf, twin, bits, to); to++)
		;
	*at = from;
	return to - from;
}

/* ---- Writing what differs: each run of bytes by a request of its own. Runs on the stacks of signal handlers, but for what
 * is busy. ---- */

/* Bytes of a segment that changes meanwhile, which are on the stack for the while. */
#define BUSY_PIECE 512

/* The bytes of segment i from `at` on that were stored, as far as there is room: how many requests. */
static unsigned find_parts(const struct set *set, size_t i, const char *buf, size_t *at, struct ummap_io *io, unsigned room)
{
	uint64_t begin = set->targets[set->current].offset + ((uint64_t)i << set->shift);
	unsigned n = 0;
	size_t len;

	while (n < room && (len = differs(set, i, buf, at))) {
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
		mark_unsure(set, i, at, len);
	} else if (set->unsure) {
		mark_sure(set, i, at, len);
	}
	return err;
}

long twin_write_busy(struct set *set, size_t i, const char *buf)
{
	size_t at = 0, end = 0, len;
	int err = 0;

	while (!err && (len = differs(set, i, buf, &at))) {
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
			mark_unsure(set, i, at, io[k].len);
			continue;
		}
		memcpy(twin_home(set, i) + at, io[k].buf, io[k].len);
		if (set->unsure)
			mark_sure(set, i, at, io[k].len);
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
		mark_sure(set, i, 0, from);
	note_failure(set, i, io, n);
	return err;
}
