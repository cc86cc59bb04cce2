/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of mappings, and their sums. */
#ifndef STATS_H
#define STATS_H

#include "paging/mapping/lookup.h"

#include <ummap.h>

/* Adds the counters of a mapping to *st. */
void stats_map(const struct mapping *map, struct umstat *st);
/* Adds the counters of a mapping that ends to those of the process. */
void stats_ending(const struct mapping *map);
/* Gets the counters of the process. */
void stats_process(struct umstat *st);
/* In a forked child: no mapping has ended. */
void stats_forget(void);

/* Prints the counters (UMMAP_STATS): if `where` is "1", as text to stderr; otherwise as JSON to the
 * file `where`. */
void stats_print(const char *where, const struct umstat *st);
/* Publishes the counters in the table of the node. For the background thread, after
 * share_adjust. */
void stats_publish(void);

#endif
