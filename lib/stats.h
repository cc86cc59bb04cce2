/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters, printed at exit (UMMAP_STATS). */
#ifndef STATS_H
#define STATS_H

#include <ummap.h>

/* where "1": to stderr, for people; a path: there, as JSON. */
void stats_print(const char *where, const struct umstat *st);

#endif
