/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Twins. If other mappings write to the same bytes, only bytes that were stored here may be
 * written, because the other bytes of the segment are outdated by the time it is written.
 * Therefore, a segment that can be stored to has a twin, a copy from before its first store, and
 * exactly the bytes in which the two differ are written. A twin is a frame of the pool, and is
 * charged like any frame.
 */
#include "paging/sync/twin.h"

#include <string.h>

static uint32_t *twin_entry(const struct mapping *map, size_t i)
{
	const struct extent *e = map_extent(map, i);

	return &e->twins[i - e->first];
}

/* Returns the bits of the bytes of segment i that are written again even if they equal the twin. */
static uint8_t *unsure_bits(const struct mapping *map, size_t i)
{
	const struct extent *e = map_extent(map, i);

	return e->unsure + (((i - e->first) << map->shift) / 8);
}

/* A write of these bytes has failed, and storage may have the old or the new ones. They must be
 * written even if they change back. */
static void mark_unsure(struct mapping *map, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure_bits(map, i);

	map->sync.unsure = true;
	for (; len > 0; at++, len--)
		bits[at / 8] |= (uint8_t)(1 << at % 8);
}

/* Checks each bit before it clears it: most segments have none, and their bits have no memory
 * yet. */
static void mark_sure(struct mapping *map, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure_bits(map, i);

	for (; len > 0; at++, len--) {
		if (bits[at / 8] >> at % 8 & 1)
			bits[at / 8] &= (uint8_t)~(1 << at % 8);
	}
}

bool twin_has(const struct mapping *map, size_t i)
{
	return map->writers && *twin_entry(map, i);
}

void twin_keep(struct mapping *map, size_t i, const char *buf, uint32_t frame)
{
	/* The frame may be blank, and does not stay so. */
	frame_use_blank(frame);
	memcpy(frame_addr(frame), buf, map_len(map, i));
	*twin_entry(map, i) = frame + 1;
}

void twin_drop(struct mapping *map, size_t i)
{
	uint32_t *twin;

	if (!twin_has(map, i))
		return;
	if (map->sync.unsure)
		mark_sure(map, i, 0, map->seg_size);
	twin = twin_entry(map, i);
	account_refund(map_account(map), map->seg_size);
	frame_free(*twin - 1);
	*twin = 0;
}

void twin_replace(struct mapping *map, size_t i, uint32_t frame)
{
	twin_drop(map, i);
	*twin_entry(map, i) = frame + 1;
}

char *twin_addr(const struct mapping *map, size_t i)
{
	return frame_addr(*twin_entry(map, i) - 1);
}

static bool is_written(const char *buf, const char *twin, const uint8_t *bits, size_t at)
{
	return buf[at] != twin[at] || (bits && bits[at / 8] >> at % 8 & 1);
}

/* Returns the end of the bytes from `from` on that equal the twin, in whole steps of
 * COMPARE_BYTES. */
static size_t skip_alike(const char *buf, const char *twin, const uint8_t *bits, size_t from,
	size_t len)
{
	static const uint8_t none[COMPARE_BYTES / 8];

	while (from + COMPARE_BYTES <= len && memcmp(buf + from, twin + from, COMPARE_BYTES) == 0 &&
	       (!bits || (from % 8 == 0 && memcmp(bits + from / 8, none, sizeof(none)) == 0)))
		from += COMPARE_BYTES;
	return from;
}

/* Finds the next bytes, from *at on, in which segment i differs from its twin; buf has its
 * contents. Sets *at to the first one. Returns their number; 0: there are none. */
static size_t find_difference(const struct mapping *map, size_t i, const char *buf, size_t *at)
{
	const uint8_t *bits = map->sync.unsure ? unsure_bits(map, i) : NULL;
	const char *twin = twin_addr(map, i);
	size_t len = map_len(map, i), from = skip_alike(buf, twin, bits, *at, len), to;

	while (from < len && !is_written(buf, twin, bits, from))
		from++;
	for (to = from; to < len && is_written(buf, twin, bits, to); to++)
		;
	*at = from;
	return to - from;
}

/* ---- Writing each difference by a request of its own, in signal handlers, too ---- */

/* Makes up to `room` requests for the differing bytes of segment i from *at on. Returns how
 * many. */
static unsigned find_parts(const struct mapping *map, size_t i, const char *buf, size_t *at,
	struct ummap_io *io, unsigned room)
{
	uint64_t begin = map->backings[map->current].offset + ((uint64_t)i << map->shift);
	unsigned n = 0;
	size_t len;

	while (n < room && (len = find_difference(map, i, buf, at))) {
		io[n++] = (struct ummap_io){ .op = UMMAP_IO_WRITE, .off = begin + *at,
					     .buf = (char *)(uintptr_t)buf + *at, .len = len };
		*at += len;
	}
	return n;
}

/* Writes bytes of a segment that may change during the write: they are copied to the twin and
 * written from there, so that the twin has the bytes that were written. */
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
		/* The bytes still differ from the twin, even if they do not change again. */
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

	while (!err && (len = find_difference(map, i, buf, &at))) {
		len = min_size(len, BUSY_WRITE_BYTES);
		err = write_piece(map, i, buf, at, len);
		end = at += len;
	}
	return err ? err : (long)end;
}

/* Some requests have failed. The twin takes the bytes that were written; the others are unsure. */
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
	/* Earlier requests have written all bytes before `from`. */
	memcpy(twin_addr(map, i), buf, from);
	if (map->sync.unsure)
		mark_sure(map, i, 0, from);
	note_failure(map, i, io, n);
	return err;
}
