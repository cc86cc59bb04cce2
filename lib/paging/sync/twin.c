/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where other mappings write to the same bytes, only bytes that were stored may be written: the segment's copy of the
 * others' bytes is outdated by the time it is written. So a segment that can be stored to has a twin, a copy from
 * before its first store, and the bytes in which the two differ are written; only these, because others may have
 * written the bytes between them. A twin is a frame of the pool, and charged like the segment's own frame.
 */
#include "paging/sync/twin.h"

#include <string.h>

static uint32_t *place(const struct mapping *map, size_t i)
{
	const struct extent *e = map_extent(map, i);

	return &e->twins[i - e->first];
}

/* The bits of segment i's bytes that are written again, whatever they are. */
static uint8_t *unsure(const struct mapping *map, size_t i)
{
	const struct extent *e = map_extent(map, i);

	return e->unsure + (((i - e->first) << map->shift) / 8);
}

/* What storage has of these bytes is what they were or what was to be written: if they change back, they are written,
 * too. */
static void mark_unsure(struct mapping *map, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure(map, i);

	map->sync.unsure = true;
	for (; len > 0; at++, len--)
		bits[at / 8] |= (uint8_t)(1 << at % 8);
}

/* A look first: of most segments none is unsure, and there is no memory for bits. */
static void mark_sure(struct mapping *map, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure(map, i);

	for (; len > 0; at++, len--) {
		if (bits[at / 8] >> at % 8 & 1)
			bits[at / 8] &= (uint8_t)~(1 << at % 8);
	}
}

bool twin_has(const struct mapping *map, size_t i)
{
	return map->writers && *place(map, i);
}

void twin_keep(struct mapping *map, size_t i, const char *buf, uint32_t frame)
{
	/* It will not have the zeros that it may have come with. */
	frame_use_blank(frame);
	memcpy(frame_addr(frame), buf, map_len(map, i));
	*place(map, i) = frame + 1;
}

void twin_drop(struct mapping *map, size_t i)
{
	uint32_t *twin;

	if (!twin_has(map, i))
		return;
	if (map->sync.unsure)
		mark_sure(map, i, 0, map->seg_size);
	twin = place(map, i);
	account_refund(map_account(map), map->seg_size);
	frame_free(*twin - 1);
	*twin = 0;
}

char *twin_addr(const struct mapping *map, size_t i)
{
	return frame_addr(*place(map, i) - 1);
}

static bool is_written(const char *buf, const char *twin, const uint8_t *bits, size_t at)
{
	return buf[at] != twin[at] || (bits && bits[at / 8] >> at % 8 & 1);
}

/* Bytes from `from` on that are as in the twin: a multiple of COMPARE_BYTES, which begins at one. */
static size_t skip_alike(const char *buf, const char *twin, const uint8_t *bits, size_t from, size_t len)
{
	static const uint8_t none[COMPARE_BYTES / 8];

	while (from + COMPARE_BYTES <= len && memcmp(buf + from, twin + from, COMPARE_BYTES) == 0 &&
	       (!bits || (from % 8 == 0 && memcmp(bits + from / 8, none, sizeof(none)) == 0)))
		from += COMPARE_BYTES;
	return from;
}

/* The next bytes in which segment i, whose contents are in buf, differs from its twin: how many, from *at on; 0: there
 * are none from there on. */
static size_t differs(const struct mapping *map, size_t i, const char *buf, size_t *at)
{
	const uint8_t *bits = map->sync.unsure ? unsure(map, i) : NULL;
	const char *twin = twin_addr(map, i);
	size_t len = map_len(map, i), from = skip_alike(buf, twin, bits, *at, len), to;

	while (from < len && !is_written(buf, twin, bits, from))
		from++;
	for (to = from; to < len && is_written(buf, twin, bits, to); to++)
		;
	*at = from;
	return to - from;
}

/* ---- Writing what differs: each run of bytes by a request of its own. Runs on the stacks of signal handlers, but for
 * what is busy. ---- */

/* The bytes of segment i from `at` on that were stored, as far as there is room: how many requests. */
static unsigned find_parts(const struct mapping *map, size_t i, const char *buf, size_t *at, struct ummap_io *io, unsigned room)
{
	uint64_t begin = map->backings[map->current].offset + ((uint64_t)i << map->shift);
	unsigned n = 0;
	size_t len;

	while (n < room && (len = differs(map, i, buf, at))) {
		io[n++] = (struct ummap_io){ .op = UMMAP_IO_WRITE, .buf = (char *)(uintptr_t)buf + *at, .len = len,
					     .off = begin + *at };
		*at += len;
	}
	return n;
}

/* A cluster of a part that changes while it is written: it leaves by way of the twin, which then has what was
 * written. */
static int write_piece(struct mapping *map, size_t i, const char *buf, size_t at, size_t len)
{
	const struct backing *t = &map->backings[map->current];
	char *twin = twin_addr(map, i) + at, before[BUSY_WRITE_BYTES];
	struct ummap_io io = { .op = UMMAP_IO_WRITE, .buf = twin, .len = len,
			       .off = t->offset + ((uint64_t)i << map->shift) + at };
	int err;

	memcpy(before, twin, len);
	memcpy(twin, buf + at, len);
	err = io_run(t->store, &io, 1, false, &map->stat.io);
	if (err) {
		/* It still differs, in case it does not change again. */
		memcpy(twin, before, len);
		mark_unsure(map, i, at, len);
	} else if (map->sync.unsure) {
		mark_sure(map, i, at, len);
	}
	return err;
}

long twin_write_busy(struct mapping *map, size_t i, const char *buf)
{
	size_t at = 0, end = 0, len;
	int err = 0;

	while (!err && (len = differs(map, i, buf, &at))) {
		len = min_size(len, BUSY_WRITE_BYTES);
		err = write_piece(map, i, buf, at, len);
		end = at += len;
	}
	return err ? err : (long)end;
}

/* Some of these have failed: what was written the twin has from now on, what was not is unsure. */
static void note_failure(struct mapping *map, size_t i, const struct ummap_io *io, unsigned n)
{
	uint64_t begin = map->backings[map->current].offset + ((uint64_t)i << map->shift);

	for (unsigned k = 0; k < n; k++) {
		size_t at = (size_t)(io[k].off - begin);

		if (io[k].res) {
			mark_unsure(map, i, at, io[k].len);
			continue;
		}
		memcpy(twin_addr(map, i) + at, io[k].buf, io[k].len);
		if (map->sync.unsure)
			mark_sure(map, i, at, io[k].len);
	}
}

long twin_write(struct mapping *map, size_t i, const char *buf, struct ummap_io *io, unsigned room)
{
	size_t at = 0, from, end = 0;
	int err = 0;
	unsigned n;

	while (!err) {
		from = end;
		n = find_parts(map, i, buf, &at, io, room);
		if (!n)
			break;
		end = at;
		err = io_run(map->backings[map->current].store, io, n, false, &map->stat.io);
	}
	if (!err)
		return (long)end;
	/* All before these were written. */
	memcpy(twin_addr(map, i), buf, from);
	if (map->sync.unsure)
		mark_sure(map, i, 0, from);
	note_failure(map, i, io, n);
	return err;
}
