/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where others write to the bytes of a mapping, too, only those may be written that were stored: what a segment read of the
 * others' is old by the time that it leaves. So a segment that can be stored to has a twin, a copy from before its first
 * store, and what is written are the bytes in which the two differ: these alone, for what lies between them may be
 * somebody else's. A twin is a frame of the pool, and charged as the segment's own is.
 */
#include "twin.h"

#include <string.h>

/* Bytes that are looked at in one go. */
#define STEP 64

static uint32_t *place(const struct set *set, size_t i)
{
	const struct extent *e = set->extents;

	while (i - e->first >= e->count)
		e++;
	return &e->twins[i - e->first];
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
	twin = place(set, i);
	set_share(set)->bytes -= set->seg_size;
	frame_give(*twin - 1);
	*twin = 0;
}

char *twin_home(const struct set *set, size_t i)
{
	return frame_home(*place(set, i) - 1);
}

size_t twin_differs(const struct set *set, size_t i, const char *buf, size_t *at)
{
	const char *twin = twin_home(set, i);
	size_t len = set_len(set, i), from = *at, to;

	while (from + STEP <= len && memcmp(buf + from, twin + from, STEP) == 0)
		from += STEP;
	while (from < len && buf[from] == twin[from])
		from++;
	for (to = from; to < len && buf[to] != twin[to]; to++)
		;
	*at = from;
	return to - from;
}
