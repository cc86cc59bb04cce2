/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters: added up, printed at exit (UMMAP_STATS), and published on the node. */
#ifndef STATS_H
#define STATS_H

#include "paging/mapping/lookup.h"

#include <ummap.h>

/* Adds the counters of a mapping to *st; or to those of the process, when the mapping ends. */
void stats_map(const struct mapping *map, struct umstat *st);
void stats_ending(const struct mapping *map);
void stats_process(struct umstat *st);
/* In a forked child: no mapping has ended. */
void stats_forget(void);

/* where is "1": as text, to stderr; a path: there, as JSON. */
void stats_print(const char *where, const struct umstat *st);
/* Puts the counters into the node's table. For the background thread, after share_adjust. */
void stats_publish(void);

#endif
