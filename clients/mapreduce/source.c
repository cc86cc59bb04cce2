/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/source.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

static bool comes_before(const struct source *s, unsigned a, unsigned b)
{
	const struct pair *x = &s->pairs[a], *y = &s->pairs[b];
	int order = compare_keys(x->key, x->head.key_size, y->key, y->head.key_size);

	return s->descending ? order > 0 : order < 0;
}

static void sift_down(struct source *s, unsigned at)
{
	for (unsigned child; (child = 2 * at + 1) < s->streams; at = child) {
		unsigned moved = s->heap[at];

		if (child + 1 < s->streams && comes_before(s, s->heap[child + 1], s->heap[child]))
			child++;
		if (!comes_before(s, s->heap[child], moved))
			return;
		s->heap[at] = s->heap[child];
		s->heap[child] = moved;
	}
}

int source_open_streams(struct source *s, struct reader *readers, unsigned streams, bool descending)
{
	*s = (struct source){ .readers = readers, .descending = descending };
	s->pairs = malloc(streams * sizeof(*s->pairs));
	s->heap = malloc(streams * sizeof(*s->heap));
	if (!s->pairs || !s->heap)
		return fail(ENOMEM, "cannot merge %u streams: no memory", streams);
	for (unsigned i = 0; i < streams; i++) {
		int there = reader_next(&readers[i], &s->pairs[i]);

		if (there < 0)
			return -1;
		if (there > 0)
			s->heap[s->streams++] = i;
	}
	for (unsigned i = s->streams / 2; i-- > 0; )
		sift_down(s, i);
	return 0;
}

int source_open_table(struct source *s, const struct table *t, bool descending)
{
	*s = (struct source){ .entries = table_sorted(t, descending), .count = t->entries };
	return s->entries ? 0 : -1;
}

void source_close(struct source *s)
{
	free(s->entries);
	free(s->pairs);
	free(s->heap);
	*s = (struct source){ 0 };
}

/* The stream whose pair was given goes on to its next one. */
static int advance(struct source *s)
{
	unsigned first = s->heap[0];
	int there = reader_next(&s->readers[first], &s->pairs[first]);

	if (there < 0)
		return -1;
	if (there == 0)
		s->heap[0] = s->heap[--s->streams];
	sift_down(s, 0);
	return 0;
}

int source_next(struct source *s, struct pair *p)
{
	if (s->entries) {
		const struct entry *e = s->at < s->count ? s->entries[s->at++] : NULL;

		if (e)
			*p = (struct pair){ e->head, e->key, e->value };
		return e != NULL;
	}
	if (s->given && advance(s) < 0)
		return -1;
	s->given = s->streams > 0;
	if (s->given)
		*p = s->pairs[s->heap[0]];
	return s->given;
}
