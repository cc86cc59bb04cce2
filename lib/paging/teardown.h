/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments for good gone: their mapping ends, or becomes shorter. */
#ifndef TEARDOWN_H
#define TEARDOWN_H

#include "paging/mapping.h"

/* Forgets every segment of a hidden mapping from `first` on, changes included. The mapped range stays, and faults. */
void teardown(struct mapping *map, size_t first);

#endif
