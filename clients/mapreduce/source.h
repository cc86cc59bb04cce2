/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs in order of keys: of sorted streams, which are merged, or of a table. A key may come several times. */
#ifndef MAPREDUCE_SOURCE_H
#define MAPREDUCE_SOURCE_H

#include "mapreduce/stream.h"
#include "mapreduce/table.h"

#include <stdbool.h>

struct source {
	struct entry **entries;   /* of a table */
	uint64_t count, at;
	struct reader *readers;   /* of streams */
	struct pair *pairs;       /* the next one of each */
	unsigned *heap, streams;  /* those that are not through, by their next pairs */
	bool given;               /* the pair of the first in the heap */
	bool descending;
};

/* The readers, which are open, stay the caller's. */
int source_open_streams(struct source *s, struct reader *readers, unsigned streams, bool descending);
int source_open_table(struct source *s, const struct table *t, bool descending);
void source_close(struct source *s);

/* 1, 0 behind the last, or -1. The pair is good until the next call. */
int source_next(struct source *s, struct pair *p);

#endif
