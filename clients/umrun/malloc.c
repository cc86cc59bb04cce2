/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of malloc(3). Large allocations come from the heap, others from the C library; the
 * address tells which. Allocations of the library itself never come from the heap, in any thread:
 * the heap needs them to work.
 */
#include "umrun/config.h"
#include "umrun/heap.h"
#include "umrun/next_calls.h"

/* Allocations of the C library stay there: it reads into them by calls that are not intercepted. */
static bool is_large(const void *caller, size_t size)
{
	return heap_calls && size >= config.heap_min && !next_is_own(caller) &&
	       !next_is_c(caller) && heap_ready();
}

void *take_malloc(const void *caller, size_t size)
{
	return is_large(caller, size) ? heap_alloc(size) : next_malloc(size);
}

void *take_calloc(const void *caller, size_t count, size_t size)
{
	size_t all;

	if (!__builtin_mul_overflow(count, size, &all) && is_large(caller, all))
		return heap_alloc_zeros(count, size);
	return next_calloc(count, size);
}

void take_free(void *memory)
{
	if (heap_has(memory))
		heap_free(memory);
	else
		next_free(memory);
}

/* Moves an allocation between the heap and the C library. */
static void *move_allocation(const void *caller, void *old, size_t old_size, size_t size)
{
	void *memory = take_malloc(caller, size);

	if (!memory)
		return NULL;
	memcpy(memory, old, old_size < size ? old_size : size);
	take_free(old);
	return memory;
}

void *take_realloc(const void *caller, void *old, size_t size)
{
	if (!old)
		return take_malloc(caller, size);
	if (heap_has(old)) {
		if (size == 0)
			return take_free(old), NULL;
		return size >= config.heap_min ? heap_realloc(old, size) :
		       move_allocation(caller, old, heap_usable_size(old), size);
	}
	if (is_large(caller, size))
		return move_allocation(caller, old, malloc_usable_size(old), size);
	return next_realloc(old, size);
}

void *take_reallocarray(const void *caller, void *old, size_t count, size_t size)
{
	size_t all;

	if (!__builtin_mul_overflow(count, size, &all))
		return take_realloc(caller, old, all);
	errno = ENOMEM;
	return NULL;
}

/* The C library handles an alignment that is not a power of two. */
void *take_memalign(const void *caller, align_call next, size_t alignment, size_t size)
{
	if (alignment && !(alignment & (alignment - 1)) && is_large(caller, size))
		return heap_alloc_aligned(alignment, size);
	return next(alignment, size);
}

int take_posix_memalign(const void *caller, void **to, size_t alignment, size_t size)
{
	int error = errno;
	void *memory;

	if (alignment < sizeof(void *) || alignment & (alignment - 1) || !is_large(caller, size))
		return next_posix_memalign(to, alignment, size);
	memory = heap_alloc_aligned(alignment, size);
	errno = error;
	if (!memory)
		return ENOMEM;
	*to = memory;
	return 0;
}

void *take_pvalloc(const void *caller, size_t size)
{
	size_t page = page_bytes();

	if (size > SIZE_MAX - page) {
		errno = ENOMEM;
		return NULL;
	}
	return take_memalign(caller, next_memalign, page, (size + page - 1) & ~(page - 1));
}
