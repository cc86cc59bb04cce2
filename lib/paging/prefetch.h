/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading of segments that nobody has asked for yet. */
#ifndef PREFETCH_H
#define PREFETCH_H

#include "paging/mapping.h"

/* Loads the absent ones of `count` segments from first on, every `step`th, to the inactive ones, as far as there is room
 * without evicting; false: there was none for all. */
bool prefetch(struct mapping *map, size_t first, size_t count, size_t step);

#endif
