/* SPDX-License-Identifier: BSD-3-Clause */
/* Page-cache mappings: pages of the kernel's page cache are mapped, instead of copied. */
#ifndef PAGECACHE_H
#define PAGECACHE_H

#include "paging/mapping.h"

/* Whether its segments may be mapped from the page cache. */
bool pagecache_may(const struct mapping *map);
/* Before the first of them are, of each store. 0, or -errno with a sentence. */
int pagecache_prepare(const struct mapping *map);
/* Whether loads of [first, last) would be, now. */
bool pagecache_has(struct mapping *map, size_t first, size_t last);
/* For a load of segment i: maps the kernel's pages in its place, if the page cache has all of it, and those of
 * neighbours for which that is true. false: the segment has to be paged in. */
bool pagecache_map(struct mapping *map, size_t i);
/* Makes the segments of [first, last) that are mapped from the page cache absent again. 0 or -errno: some may still be
 * mapped. */
int pagecache_unmap(struct mapping *map, size_t first, size_t last);
/* The same for some of those whose pages the kernel has evicted, so that the library pages them in, and not the
 * kernel. */
void pagecache_look(struct mapping *map);
/* The mapping has none of them any more: it ends, say. */
void pagecache_forget(struct mapping *map);

#endif
