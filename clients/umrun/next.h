/* SPDX-License-Identifier: BSD-3-Clause */
/* The callers of the functions that umrun takes. next_calls.h, which is made from umrun/wrappers,
 * has the functions of the next library. */
#ifndef UMRUN_NEXT_H
#define UMRUN_NEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* Finds the addresses of the library, and of libumalloc and liburing, which belong to it. */
void next_start(void);
/* Whether the caller is the library, whose calls pass unchanged; or the library or this one; or the
 * C library. */
bool next_is_library(const void *return_address);
bool next_is_own(const void *return_address);
bool next_is_c(const void *return_address);
/* Maps private memory by the kernel: MAP_FAILED with errno if that fails. */
void *map_private(size_t len);

static inline size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static inline size_t round_to_pages(size_t len)
{
	return (len + page_bytes() - 1) & ~(page_bytes() - 1);
}

/* A function that the program calls in place of the C library's. */
#define PUBLIC __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

#endif
