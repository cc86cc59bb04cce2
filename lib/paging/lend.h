/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments that the kernel has in memory already: its own pages in the view, in place of a copy. */
#ifndef LEND_H
#define LEND_H

#include "paging/set.h"

/* A load of segment i: its place shows the kernel's pages from now on, if the kernel has all of it, and so do those of
 * neighbours for which that is true. false: it has to be loaded. */
bool lend(struct set *set, size_t i);
/* Those of [first, last) that are lent are absent again. 0 or -errno: some may still be lent. */
int lend_recall(struct set *set, size_t first, size_t last);
/* The same for some of those whose pages the kernel has let go of, so that they are loaded by us, not by it. */
void lend_look(struct set *set);

#endif
