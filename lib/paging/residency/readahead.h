/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds sequential runs of faults, reads ahead of them, and drops segments behind them. */
#ifndef READAHEAD_H
#define READAHEAD_H

#include "paging/mapping/mapping.h"

/* Segment i is about to be paged in. Reads ahead if that continues a run, and loads the rest of a
 * cluster that readahead should have loaded. In a mapping that is read sequentially, drops
 * segments behind. */
void readahead_fault(struct mapping *map, size_t i);
/* Sets the advice of the program: UMMAP_ADV_NORMAL, UMMAP_ADV_RANDOM or UMMAP_ADV_SEQUENTIAL. */
static inline void readahead_advise(struct mapping *map, int advice)
{
	map->residency.advice = advice;
}
/* Whether the advice and the settings permit to read ahead. */
bool readahead_is_wanted(const struct mapping *map);
/* Whether the advice is sequential access. */
static inline bool readahead_is_in_order(const struct mapping *map)
{
	return map->residency.advice == UMMAP_ADV_SEQUENTIAL;
}
/* A segment that was read ahead was accessed (readahead_note_use), or is reclaimed without having
 * been accessed (readahead_note_waste). */
void readahead_note_use(struct mapping *map);
void readahead_note_waste(struct mapping *map);
/* Readahead takes too much memory: a segment in use was evicted, and was accessed again while it
 * was inactive. */
void readahead_note_pressure(struct mapping *map);
/* Loads [first, last) in the background, as far as memory allows. */
void readahead_want(struct mapping *map, size_t first, size_t last);
/* readahead_needs_load: whether segment i is absent and has contents to be loaded. readahead_load
 * loads such segments of a sorted list at once; it returns false if memory has no room for more. */
bool readahead_needs_load(const struct mapping *map, size_t i);
bool readahead_load(struct mapping *map, const size_t *list, size_t n);

#endif
