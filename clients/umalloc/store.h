/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UMALLOC_STORE_H
#define UMALLOC_STORE_H

#include <stddef.h>

struct ummap_attr;

/* Maps the store of a heap; uri NULL: a file without a name in $TMPDIR. Returns 0, or -1 with
 * errno. */
int store_map(const char *uri, size_t size, const struct ummap_attr *attr, void **base);

#endif
