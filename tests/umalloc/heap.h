/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of libumalloc share. */
#ifndef TESTS_UMALLOC_HEAP_H
#define TESTS_UMALLOC_HEAP_H

#include "common.h"

#include <umalloc.h>

#define SEG (256 * KIB)  /* of a heap that names none */

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

/* What its mapping counts. */
static inline struct umstat heap_umstat(umalloc_heap *heap)
{
	return stat_of(heap_stats(heap).base);
}

/* call gives NULL with errno, and leaves a sentence. */
#define check_null(call, error) do { \
	errno = 0; \
	check((call) == NULL, "%s", #call); \
	check(errno == (error), "%s: %s", #call, umalloc_errormsg()); \
	check(strchr(umalloc_errormsg(), ' '), "%s", #call); \
} while (0)

#endif
