/* SPDX-License-Identifier: BSD-3-Clause */
/* Announcements of regions to other programs of the memory group: a program whose region another
 * program has announced shares the memory of a node copy. */
#ifndef UMRUN_ANNOUNCE_H
#define UMRUN_ANNOUNCE_H

#include "umrun/list.h"

/* Announces a read-only region, and sets r->announced to the descriptor that lasts as long as the
 * region. Returns whether another program has announced the same bytes, and memory that both of
 * them share is of use: the kernel's page cache does not have the bytes. */
bool announce_region(struct region *r);

#endif
