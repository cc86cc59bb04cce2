/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpiio/staging.h"

#include "common/minmax.h"

#include <stdlib.h>
#include <string.h>

void staging_init(struct staging *s)
{
	*s = (struct staging){ .end = &s->first };
}

static void remove_write(struct staging *s, struct staged_write **at)
{
	struct staged_write *w = *at;

	*at = w->next;
	if (s->end == &w->next)
		s->end = at;
	s->count--;
	s->bytes -= w->len;
	s->removals++;
	free(w);
}

void staging_free(struct staging *s)
{
	while (s->first)
		remove_write(s, &s->first);
}

/* Most writes lie behind all others, and cover none. */
static void remove_covered(struct staging *s, size_t len, uint64_t off)
{
	struct staged_write **at = &s->first;

	if (off >= s->top)
		return;
	for (size_t i = 0; i < s->taken; i++)
		at = &(*at)->next;
	while (*at) {
		if (off <= (*at)->off && (*at)->off + (*at)->len <= off + len)
			remove_write(s, at);
		else
			at = &(*at)->next;
	}
}

bool staging_add(struct staging *s, const void *from, size_t len, uint64_t off)
{
	struct staged_write *w = malloc(sizeof(*w) + len);

	if (!w)
		return false;
	remove_covered(s, len, off);
	*w = (struct staged_write){ .off = off, .len = len };
	memcpy(w->data, from, len);
	*s->end = w;
	s->end = &w->next;
	s->top = s->count++ > 0 ? max_u64(s->top, off + len) : off + len;
	s->bytes += len;
	return true;
}

void staging_overlay(const struct staging *s, char *to, size_t len, uint64_t off)
{
	for (const struct staged_write *w = s->first; w; w = w->next) {
		uint64_t begin = max_u64(w->off, off), end = min_u64(w->off + w->len, off + len);

		if (begin < end)
			memcpy(to + (begin - off), w->data + (begin - w->off), end - begin);
	}
}

static bool overlaps_older(const struct staging *s, const struct staged_write *w)
{
	for (const struct staged_write *older = s->first; older != w; older = older->next)
		if (older->off < w->off + w->len && w->off < older->off + older->len)
			return true;
	return false;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct staged_write *x = *(struct staged_write *const *)a;
	const struct staged_write *y = *(struct staged_write *const *)b;

	return x->off < y->off ? -1 : x->off > y->off;
}

size_t staging_take(struct staging *s, struct staged_write **list, size_t max_bytes)
{
	size_t bytes = 0;
	uint64_t end = 0;

	for (struct staged_write *w = s->first; w && bytes < max_bytes; w = w->next) {
		if (w->off < end && overlaps_older(s, w))
			break;
		end = max_u64(end, w->off + w->len);
		bytes += w->len;
		list[s->taken++] = w;
	}
	qsort(list, s->taken, sizeof(*list), compare_offsets);
	return s->taken;
}

void staging_end_take(struct staging *s, bool are_written)
{
	for (; s->taken > 0; s->taken--)
		if (are_written)
			remove_write(s, &s->first);
}
