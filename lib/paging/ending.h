/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments for good gone: their mapping ends, or becomes shorter. */
#ifndef ENDING_H
#define ENDING_H

#include "paging/set.h"

/* Forgets every segment of a hidden set from `first` on, changes included. The view stays, and faults. */
void ending_forget(struct set *set, size_t first);

#endif
