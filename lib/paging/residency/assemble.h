/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts segments that were loaded one by one on huge pages. */
#ifndef ASSEMBLE_H
#define ASSEMBLE_H

#include "paging/mapping/mapping.h"

/* The background thread calls this once a second. If the mapping is idle, some huge pages are
 * assembled, for a bounded time. */
void assemble_if_idle(struct mapping *map);

#endif
