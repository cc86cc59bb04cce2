/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * malloc and its relatives for the whole program, plug-ins included: glibc's own, but they tell when a
 * driver uses them where it may not. Not for builds with sanitizers, which have theirs: watch_nothing.c stands
 * in there.
 */
#include "watch_malloc.h"

#include "conform.h"

#include <errno.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *p);

static _Thread_local bool watching;

void watch_begin(void)
{
	watching = true;
}

void watch_end(void)
{
	watching = false;
}

static void note(const char *name)
{
	if (!watching)
		return;
	watching = false;
	expect(false, "a call that has to be fault-safe uses %s, which a signal handler may have interrupted", name);
}

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	note("malloc");
	return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	note("calloc");
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t size)
{
	note("realloc");
	return __libc_realloc(p, size);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t size)
{
	note("aligned_alloc");
	return __libc_memalign(align, size);
}

__attribute__((visibility("default"))) int posix_memalign(void **p, size_t align, size_t size)
{
	note("posix_memalign");
	*p = __libc_memalign(align, size);
	return *p ? 0 : ENOMEM;
}

__attribute__((visibility("default"))) void free(void *p)
{
	note("free");
	__libc_free(p);
}
