/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for a mapped range that gets other pages. */
#ifndef HANDOVER_H
#define HANDOVER_H

#include "paging/mapping/mapping.h"

/* Enclose the end of a mapping whose addresses get other pages. The mapping must still be in the
 * table at handover_begin. */
void handover_begin(const struct mapping *map);
void handover_end(void);
/* Waits while the address is in a handover. Returns true if the access must be tried again, because
 * a handover may have ended since the access faulted. */
bool handover_arrived(const void *addr);
/* In a forked child: there is no handover. */
void handover_fork_child(void);

#endif
