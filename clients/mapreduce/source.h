/* SPDX-License-Identifier: BSD-3-Clause */
/* Sources return pairs in order of keys: from a table, or from sorted streams that are merged. A
 * key may come several times. */
#ifndef MAPREDUCE_SOURCE_H
#define MAPREDUCE_SOURCE_H

#include "mapreduce/reader.h"
#include "mapreduce/table.h"

#include <stdbool.h>

struct source {
	struct entry **entries; /* sorted entries of a table; NULL: the source is streams */
	uint64_t count, next;   /* number of entries, index of the next one */
	struct reader *readers; /* readers of the streams */
	struct pair *pairs;     /* the next pair of each stream */
	unsigned *heap;         /* indices of unfinished streams, as a heap by their next pairs */
	unsigned streams;       /* number of unfinished streams */
	bool has_returned_top;  /* whether the pair at the top of the heap was returned */
	bool is_descending;     /* order of keys */
};

/* The caller opens the readers before, and closes them afterwards. */
int source_open_streams(struct source *s, struct reader *readers, unsigned streams,
			bool is_descending);
int source_open_table(struct source *s, const struct table *t, bool is_descending);
void source_close(struct source *s);

/* Reads the next pair. Returns 1, 0 after the last pair, or -1. The pair is valid until the next
 * call. */
int source_next(struct source *s, struct pair *p);

#endif
