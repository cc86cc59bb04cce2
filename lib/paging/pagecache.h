/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments that the kernel has in memory already: its own pages mapped, in place of a copy. */
#ifndef PAGECACHE_H
#define PAGECACHE_H

#include "paging/mapping.h"

/* A load of segment i: its place shows the kernel's pages from now on, if the kernel has all of it, and so do those of
 * neighbours for which that is true. false: it has to be loaded. */
bool pagecache_map(struct mapping *map, size_t i);
/* Those of [first, last) that are mapped from the page cache are absent again. 0 or -errno: some may still be mapped from the page cache. */
int pagecache_unmap(struct mapping *map, size_t first, size_t last);
/* The same for some of those whose pages the kernel has let go of, so that they are loaded by us, not by it. */
void pagecache_look(struct mapping *map);

#endif
