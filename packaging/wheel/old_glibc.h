/* SPDX-License-Identifier: BSD-3-Clause */
/* Included before each file of the library in a Python wheel (`make wheel`), so that the library
 * runs with glibc 2.28. Each function that glibc has replaced or moved since then is taken in its
 * oldest version, which later releases still have. */
#pragma once

#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#define OLDEST_AT "GLIBC_2.4"
#define STAT_VERSION 1
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#define OLDEST_AT OLDEST
#define STAT_VERSION 0
#else
#error "make wheel knows the oldest version of glibc for x86-64 and AArch64 only"
#endif
#define TAKE(name, version) __asm__(".symver " #name ", " #name "@" version)
#define TAKE_OLDEST(name) TAKE(name, OLDEST)

/* glibc 2.34 moved these from libpthread and libdl into libc. */
TAKE_OLDEST(dlerror);
TAKE_OLDEST(dlopen);
TAKE_OLDEST(dlsym);
TAKE_OLDEST(pthread_create);
TAKE_OLDEST(pthread_join);
TAKE_OLDEST(pthread_sigmask);

/* Before glibc 2.33, stat(2) and its relatives were inline functions over these. */
TAKE_OLDEST(__xstat);
TAKE_OLDEST(__lxstat);
TAKE_OLDEST(__fxstat);
TAKE(__fxstatat, OLDEST_AT);
int __xstat(int version, const char *path, struct stat *st);
int __lxstat(int version, const char *path, struct stat *st);
int __fxstat(int version, int fd, struct stat *st);
int __fxstatat(int version, int fd, const char *path, struct stat *st, int flags);
#define stat(path, st) __xstat(STAT_VERSION, path, st)
#define lstat(path, st) __lxstat(STAT_VERSION, path, st)
#define fstat(fd, st) __fxstat(STAT_VERSION, fd, st)
#define fstatat(fd, path, st, flags) __fxstatat(STAT_VERSION, fd, path, st, flags)

/* glibc 2.29 added this one. */
static inline int old_getcpu(unsigned *cpu, unsigned *node)
{
	return (int)syscall(SYS_getcpu, cpu, node, NULL);
}
#define getcpu old_getcpu
