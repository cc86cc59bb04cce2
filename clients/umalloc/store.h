/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UMALLOC_STORE_H
#define UMALLOC_STORE_H

#include <stddef.h>

struct ummap_attr;

/* Maps a file of no name; 0, or -1 with errno and a sentence. */
int store_map_unnamed(size_t size, const struct ummap_attr *attr, void **base);

#endif
