/* SPDX-License-Identifier: BSD-3-Clause */
/* What stands behind the calls that are taken here, and who makes them. */
#ifndef UMRUN_NEXT_H
#define UMRUN_NEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The kernel's own calls; the library's signal handlers come this way, too. */
void *kernel_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
int kernel_munmap(void *addr, size_t len);

/* The function that the dynamic linker finds behind this library. It is asked for once for each place that calls it:
 * `cache` is that place's. */
void *next_call(void **cache, const char *name);

/* Finds out where the library is, and what belongs to it: libumalloc, liburing. */
void next_start(void);
/* A call that comes from the library itself, of which nothing is taken. */
bool next_is_library(const void *return_address);
/* A call that comes from the library, or from this one. */
bool next_is_own(const void *return_address);
/* ... from the C library. */
bool next_is_c(const void *return_address);

/* What is taken is seen by the program. */
#define PUBLIC __attribute__((visibility("default")))
#define NEXT(name) ({ static void *behind; next_call(&behind, name); })
#define CALLER __builtin_return_address(0)
#define FROM_LIBRARY() next_is_library(CALLER)

#endif
