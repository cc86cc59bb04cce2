/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/source.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

static bool comes_before(const struct source *s, unsigned a, unsigned b)
{
	const struct pair *x = &s->pairs[a], *y = &s->pairs[b];
	int order = compare_keys(x->key, x->header.key_size, y->key, y->header.key_size);

	return s->is_descending ? order > 0 : order < 0;
}

static void sift_down(struct source *s, unsigned position)
{
	for (unsigned child; (child = 2 * position + 1) < s->streams; position = child) {
		unsigned moved = s->heap[position];

		if (child + 1 < s->streams && comes_before(s, s->heap[child + 1], s->heap[child]))
			child++;
		if (!comes_before(s, s->heap[child], moved))
			return;
		s->heap[position] = s->heap[child];
		s->heap[child] = moved;
	}
}

int source_open_streams(struct source *s, struct reader *readers, unsigned streams,
			bool is_descending)
{
	*s = (struct source){ .readers = readers, .is_descending = is_descending };
	s->pairs = malloc(streams * sizeof(*s->pairs));
	s->heap = malloc(streams * sizeof(*s->heap));
	if (!s->pairs || !s->heap)
		return set_error(ENOMEM, "cannot merge %u streams: no memory", streams);
	for (unsigned i = 0; i < streams; i++) {
		int found = reader_next(&readers[i], &s->pairs[i]);

		if (found < 0)
			return -1;
		if (found > 0)
			s->heap[s->streams++] = i;
	}
	for (unsigned i = s->streams / 2; i-- > 0; )
		sift_down(s, i);
	return 0;
}

int source_open_table(struct source *s, const struct table *t, bool is_descending)
{
	*s = (struct source){ .entries = table_sort(t, is_descending), .count = t->entries };
	return s->entries ? 0 : -1;
}

void source_close(struct source *s)
{
	free(s->entries);
	free(s->pairs);
	free(s->heap);
	*s = (struct source){ 0 };
}

/* Reads the next pair of the stream at the top of the heap. */
static int advance_top(struct source *s)
{
	unsigned top = s->heap[0];
	int found = reader_next(&s->readers[top], &s->pairs[top]);

	if (found < 0)
		return -1;
	if (found == 0)
		s->heap[0] = s->heap[--s->streams];
	sift_down(s, 0);
	return 0;
}

int source_next(struct source *s, struct pair *p)
{
	if (s->entries) {
		const struct entry *e = s->next < s->count ? s->entries[s->next++] : NULL;

		if (e)
			*p = (struct pair){ e->header, e->key, e->value };
		return e != NULL;
	}
	if (s->has_returned_top && advance_top(s) < 0)
		return -1;
	s->has_returned_top = s->streams > 0;
	if (s->has_returned_top)
		*p = s->pairs[s->heap[0]];
	return s->has_returned_top;
}
