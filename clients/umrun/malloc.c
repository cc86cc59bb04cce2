/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of malloc(3): large allocations are the heap's, others the C library's, and addresses tell which is which. What the
 * library itself allocates, in whatever thread, is never the heap's, which needs it to work.
 */
#include "umrun/config.h"
#include "umrun/heap.h"
#include "umrun/next.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gnu/libc-version.h>

/* The C library reads into buffers of its streams by calls that nobody sees. */
static bool is_large(const void *caller, size_t size)
{
	return heap_calls && size >= config.heap_min && !next_is_library(caller) && !next_is_c(caller) && heap_ready();
}

PUBLIC void *malloc(size_t size)
{
	if (is_large(CALLER, size))
		return heap_alloc(size);
	return ((void *(*)(size_t))NEXT("malloc"))(size);
}

PUBLIC void *calloc(size_t count, size_t size)
{
	size_t all;

	if (!__builtin_mul_overflow(count, size, &all) && is_large(CALLER, all))
		return heap_alloc_zeros(count, size);
	return ((void *(*)(size_t, size_t))NEXT("calloc"))(count, size);
}

PUBLIC void free(void *memory)
{
	if (heap_has(memory))
		heap_free(memory);
	else
		((void (*)(void *))NEXT("free"))(memory);
}

/* From the one to the other. */
static void *cross(void *old, size_t had, size_t size)
{
	void *memory = malloc(size);

	if (!memory)
		return NULL;
	memcpy(memory, old, had < size ? had : size);
	free(old);
	return memory;
}

static void *resize(const void *caller, void *old, size_t size)
{
	if (heap_has(old)) {
		if (size == 0)
			return free(old), NULL;
		return size >= config.heap_min ? heap_realloc(old, size) : cross(old, heap_usable_size(old), size);
	}
	if (old && is_large(caller, size))
		return cross(old, malloc_usable_size(old), size);
	return ((void *(*)(void *, size_t))NEXT("realloc"))(old, size);
}

PUBLIC void *realloc(void *old, size_t size)
{
	return old ? resize(CALLER, old, size) : malloc(size);
}

PUBLIC void *reallocarray(void *old, size_t count, size_t size)
{
	size_t all;

	if (__builtin_mul_overflow(count, size, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return old ? resize(CALLER, old, all) : malloc(all);
}

PUBLIC void *memalign(size_t alignment, size_t size)
{
	/* One that is no power of two is rounded by the C library. */
	if (alignment && !(alignment & (alignment - 1)) && is_large(CALLER, size))
		return heap_alloc_aligned(alignment, size);
	return ((void *(*)(size_t, size_t))NEXT("memalign"))(alignment, size);
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size)
{
	if (alignment && !(alignment & (alignment - 1)) && is_large(CALLER, size))
		return heap_alloc_aligned(alignment, size);
	return ((void *(*)(size_t, size_t))NEXT("aligned_alloc"))(alignment, size);
}

PUBLIC int posix_memalign(void **to, size_t alignment, size_t size)
{
	int error = errno;
	void *memory;

	if (alignment < sizeof(void *) || alignment & (alignment - 1) || !is_large(CALLER, size))
		return ((int (*)(void **, size_t, size_t))NEXT("posix_memalign"))(to, alignment, size);
	memory = heap_alloc_aligned(alignment, size);
	errno = error;
	if (!memory)
		return ENOMEM;
	*to = memory;
	return 0;
}

PUBLIC void *valloc(size_t size)
{
	return memalign((size_t)sysconf(_SC_PAGESIZE), size);
}

PUBLIC void *pvalloc(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (size > SIZE_MAX - page) {
		errno = ENOMEM;
		return NULL;
	}
	return memalign(page, (size + page - 1) & ~(page - 1));
}

PUBLIC size_t malloc_usable_size(void *memory)
{
	return heap_has(memory) ? heap_usable_size(memory) : ((size_t (*)(void *))NEXT("malloc_usable_size"))(memory);
}

/* The program's own comes first, or stands behind this one in another library than the C library. */
const char *heap_of_program(void)
{
	void *first = dlsym(RTLD_DEFAULT, "malloc");
	Dl_info has, c;

	if (first == (void *)malloc)
		first = dlsym(RTLD_NEXT, "malloc");
	if (!dladdr(first, &has) || !dladdr((void *)gnu_get_libc_version, &c) || has.dli_fbase == c.dli_fbase)
		return NULL;
	return has.dli_fname;
}
