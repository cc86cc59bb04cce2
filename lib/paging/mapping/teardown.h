/* SPDX-License-Identifier: BSD-3-Clause */
/* Frees segments of a mapping that ends or becomes shorter. */
#ifndef TEARDOWN_H
#define TEARDOWN_H

#include "paging/mapping/mapping.h"

/* Drops every segment of a hidden mapping from `first` on, changes included. The mapped range
 * remains, and every access to it faults. */
void teardown(struct mapping *map, size_t first);

#endif
