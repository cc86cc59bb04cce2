/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef HANDOVER_H
#define HANDOVER_H

#include "paging/mapping/mapping.h"

/* Around the end of a mapping whose addresses go to other pages; the mapping is still found when it begins. */
void handover_begin(const struct mapping *map);
void handover_end(void);
/* Waits while the address is on its way. true: it may have arrived since the access faulted, which is to be tried again. */
bool handover_arrived(const void *addr);
void handover_fork_child(void);

#endif
