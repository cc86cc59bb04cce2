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
		twin_sure(set, i, 0, set->seg_size);
	twin = place(set, i);
	set_share(set)->bytes -= set->seg_size;
	frame_give(*twin - 1);
	*twin = 0;
}

char *twin_home(const struct set *set, size_t i)
{
	return frame_home(*place(set, i) - 1);
}

/* What storage has of these bytes is what they were or what was to be written: if they change back, they are written, too. */
void twin_unsure(struct set *set, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure(set, i);

	set->unsure = true;
	for (; len > 0; at++, len--)
		bits[at / 8] |= (uint8_t)(1 << at % 8);
}

/* A look first: of most segments none is unsure, and there is no memory for bits. */
void twin_sure(struct set *set, size_t i, size_t at, size_t len)
{
	uint8_t *bits = unsure(set, i);

	for (; len > 0; at++, len--) {
		if (bits[at / 8] >> at % 8 & 1)
			bits[at / 8] &= (uint8_t)~(1 << at % 8);
	}
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

size_t twin_differs(const struct set *set, size_t i, const char *buf, size_t *at)
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
