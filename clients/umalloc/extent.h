/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a heap: extents of its arenas. */
#ifndef UMALLOC_EXTENT_H
#define UMALLOC_EXTENT_H

#include "umalloc/arena.h"

/* The functions that jemalloc calls for extents of a heap. */
extern const extent_hooks_t extent_hooks;
/* Discards the whole segments of an allocation that is about to be freed. */
void extent_discard(struct umalloc_heap *heap, void *memory, size_t size);
/* Makes an allocation of whole segments read as zeros, by discarding them. */
void extent_clear(struct umalloc_heap *heap, void *memory, size_t size);

#endif
