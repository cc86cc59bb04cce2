/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A list, which is short unless writes go together: then it has what that round will write. Writes of one segment
 * replace one another, so that the list is no longer than there are segments, but for what is submitted. Takes no lock.
 */
#include "mpiio/staging.h"

#include <stdlib.h>
#include <string.h>

static bool meets(const struct staged *p, size_t len, uint64_t off)
{
	return p->off < off + len && off < p->off + p->len;
}

static bool covers(const struct staged *p, size_t len, uint64_t off)
{
	return off <= p->off && p->off + p->len <= off + len;
}

void staging_init(struct staging *s)
{
	*s = (struct staging){ 0 };
	s->end = &s->first;
}

static void drop(struct staging *s, struct staged **at)
{
	struct staged *p = *at;

	*at = p->next;
	if (s->end == &p->next)
		s->end = at;
	s->bytes -= p->submitted ? 0 : p->len;
	s->drops++;
	s->top = s->first ? s->top : 0;
	free(p);
}

/* Mostly one write comes behind the other, and there is nothing to look for. */
static void drop_covered(struct staging *s, size_t len, uint64_t off)
{
	if (off >= s->top)
		return;
	for (struct staged **at = &s->first; *at;) {
		if (!(*at)->submitted && covers(*at, len, off))
			drop(s, at);
		else
			at = &(*at)->next;
	}
}

bool staging_put(struct staging *s, const void *buf, size_t len, uint64_t off)
{
	struct staged *p = malloc(sizeof(*p) + len);

	if (!p)
		return false;
	drop_covered(s, len, off);
	*p = (struct staged){ .off = off, .len = len };
	memcpy(p->data, buf, len);
	*s->end = p;
	s->end = &p->next;
	s->bytes += len;
	s->top = off + len > s->top ? off + len : s->top;
	return true;
}

bool staging_bypass(struct staging *s, size_t len, uint64_t off)
{
	for (const struct staged *p = s->first; p; p = p->next) {
		if (meets(p, len, off) && (p->submitted || !covers(p, len, off)))
			return false;
	}
	drop_covered(s, len, off);
	return true;
}

void staging_overlay(const struct staging *s, char *buf, size_t len, uint64_t off)
{
	for (const struct staged *p = s->first; p; p = p->next) {
		uint64_t from = p->off > off ? p->off : off;
		uint64_t to = p->off + p->len < off + len ? p->off + p->len : off + len;

		if (from < to)
			memcpy(buf + (from - off), p->data + (from - p->off), to - from);
	}
}

static int by_offset(const void *a, const void *b)
{
	const struct staged *p = *(struct staged *const *)a, *q = *(struct staged *const *)b;

	return p->off < q->off ? -1 : p->off > q->off;
}

/* One that came before p, and is not in the file yet, has bytes of p. */
static bool has_elder(const struct staging *s, const struct staged *p)
{
	for (const struct staged *q = s->first; q != p; q = q->next) {
		if (meets(q, p->len, p->off))
			return true;
	}
	return false;
}

size_t staging_submit(struct staging *s, struct staged **list, size_t max, size_t enough)
{
	uint64_t end = 0;
	size_t n = 0, bytes = 0;

	for (struct staged *p = s->first; p && n < max && bytes < enough; p = p->next) {
		if (p->submitted || (p->off < end && has_elder(s, p)))
			continue;
		if (p->off + p->len > end)
			end = p->off + p->len;
		p->submitted = true;
		s->bytes -= p->len;
		bytes += p->len;
		list[n++] = p;
	}
	qsort(list, n, sizeof(*list), by_offset);
	return n;
}

/* Marked, so that one walk finds all. */
void staging_complete(struct staging *s, struct staged **list, size_t n, bool written)
{
	for (size_t i = 0; i < n; i++) {
		list[i]->submitted = false;
		s->bytes += list[i]->len;
		if (written)
			list[i]->off = UINT64_MAX;
	}
	for (struct staged **at = &s->first; written && n > 0 && *at;) {
		if ((*at)->off == UINT64_MAX)
			drop(s, at);
		else
			at = &(*at)->next;
	}
}

void staging_free(struct staging *s)
{
	while (s->first)
		drop(s, &s->first);
}
