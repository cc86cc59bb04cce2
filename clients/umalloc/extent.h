/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UMALLOC_EXTENT_H
#define UMALLOC_EXTENT_H

#include "umalloc/heap.h"

/* What jemalloc calls for extents of a heap. */
extern const extent_hooks_t extent_hooks;
/* Gives up the whole segments of an allocation that is going to be freed. */
void extent_give_up(struct umalloc_heap *heap, void *memory, size_t size);
/* Makes zeros of an allocation that has whole segments: they are given up. */
void extent_clear(struct umalloc_heap *heap, void *memory, size_t size);

#endif
