/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of segments, in any order, that the application is going to use. */
#ifndef PREFETCH_H
#define PREFETCH_H

#include "paging/mapping/mapping.h"

struct prefetch;

/* A list for a mapping, of which the caller has a use, of `most` segments at most; fewer, if memory has no room for so
 * many. NULL: there is no memory for it. Allocates. */
struct prefetch *prefetch_open(struct mapping *map, size_t most);
/* Adds those of [first, last) that have to be loaded. false: the list is full. */
bool prefetch_add(struct prefetch *p, size_t first, size_t last);
/* Loads them in the background. The list belongs to that from then on. */
void prefetch_start(struct prefetch *p);

#endif
