/* SPDX-License-Identifier: BSD-3-Clause */
/* Page-cache mappings: pages of the kernel's page cache are mapped, instead of copied. */
#ifndef PAGECACHE_H
#define PAGECACHE_H

#include "paging/mapping/mapping.h"

/* Whether segments of the mapping may be mapped from the page cache, whose pages are in no tier. */
static inline bool pagecache_may(const struct mapping *map)
{
	return map->engine->pagecache && !map->shared && !map->in_place && !map->tiers &&
	       io_can_map_pagecache(map->backings[map->current].store);
}
/* Must be called for each store before the first segment is mapped from it. Returns 0, or -errno
 * with a message. */
int pagecache_prepare(const struct mapping *map);
/* Whether loads of [first, last) would be served from the page cache now. */
bool pagecache_has(struct mapping *map, size_t first, size_t last);
/* Serves a load of segment i: maps the kernel's pages in its place, if the page cache has the whole
 * segment, and those of neighbours for which that is true. Where the budget is used up, older
 * page-cache mappings give way. The caller holds no lock, and has checked pagecache_may. Returns
 * false if the segment must be paged in. */
bool pagecache_map(struct mapping *map, size_t i);
/* Makes the segments of [first, last) that are mapped from the page cache absent again. Returns 0,
 * or -errno: some may still be mapped. */
int pagecache_unmap(struct mapping *map, size_t first, size_t last);
/* Unmaps the oldest page-cache mappings for the sake of a frame of `map`, unless they are within
 * the part of the budget that they may always have; `account`: of the mapping's account only, whose
 * budget is used up. Trylocks segments only. Returns false if nothing was unmapped. */
bool pagecache_yield(struct mapping *map, bool account);
/* Bytes of the mapping in page-cache mappings. */
static inline size_t pagecache_bytes(const struct mapping *map)
{
	return map->residency.pagecached << map->shift;
}
/* Unmaps page-cache mappings until they are within their part of the budget, which may have shrunk,
 * or frames leave enough of it. */
void pagecache_shrink(void);
/* Unmaps segments whose pages the kernel has evicted, so that the library pages them in, and not
 * the kernel. Checks a part of the mapping at a time. */
void pagecache_check(struct mapping *map);
/* Stops counting page-cache mappings of `segs` segments. */
void pagecache_uncount(struct mapping *map, size_t segs);
/* Clears the state of the segments from `first` on, whose places have been unmapped. The caller has
 * frozen the mapping. */
void pagecache_forget(struct mapping *map, size_t first);
/* In a forked child: there are no page-cache mappings. */
void pagecache_forget_all(void);

#endif
