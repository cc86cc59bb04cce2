/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions for the tests of libumalloc. */
#ifndef TESTS_UMALLOC_HEAP_H
#define TESTS_UMALLOC_HEAP_H

#include "common.h"

#include <umalloc.h>

#define SEG (256 * KIB)  /* the default segment of a heap */

static inline umalloc_heap *make_heap(size_t size)
{
	umalloc_heap *heap = umalloc_create(NULL, size, NULL);

	check(heap, "%s", umalloc_errormsg());
	return heap;
}

static inline struct umalloc_stats heap_stats(umalloc_heap *heap)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };

	check(umalloc_stats(heap, &stats) == 0, "%s", umalloc_errormsg());
	return stats;
}

/* Counters of the mapping of a heap. */
static inline struct umstat heap_umstat(umalloc_heap *heap)
{
	return stat_of(heap_stats(heap).base);
}

/* Checks that a call returns NULL with errno, and sets a message. */
#define check_null(call, error) do { \
	errno = 0; \
	check((call) == NULL, "%s", #call); \
	check(errno == (error), "%s: %s", #call, umalloc_errormsg()); \
	check(strchr(umalloc_errormsg(), ' '), "%s", #call); \
} while (0)

#endif
