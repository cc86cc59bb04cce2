/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of segments, in any order, that the application is going to use. */
#ifndef PREFETCH_H
#define PREFETCH_H

#include "paging/mapping/mapping.h"

struct prefetch;

/* Makes a list for a mapping, of which the caller has a use. It has at most `most` segments, or
 * fewer if memory has no room for them. Returns NULL if there is no memory for the list.
 * Allocates. */
struct prefetch *prefetch_open(struct mapping *map, size_t most);
/* Adds the segments of [first, last) that must be loaded. Returns false if the list is full. */
bool prefetch_add(struct prefetch *p, size_t first, size_t last);
/* Loads the segments of the list in the background. The caller must not use the list any more. */
void prefetch_start(struct prefetch *p);

#endif
