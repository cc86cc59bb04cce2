/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The system calls of cold reads: the library asks the kernel once whether a segment is in the page
 * cache, although the page-cache mappings and the read both need the answer.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "common.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define SEG (64 * KIB)
#define SEGS ((size_t)64)
#define SIZE (SEGS * SEG)

static _Atomic unsigned asked;
static long (*next_syscall)(long number, ...);

/* Replaces syscall(2) of the C library in this program, and counts the calls of cachestat(2). The
 * function passes on six arguments, like the C library, although callers may give fewer, so the
 * address sanitizer must not check the function. */
__attribute__((no_sanitize("address"))) long syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (!next_syscall)
		*(void **)&next_syscall = dlsym(RTLD_NEXT, "syscall");
	asked += number == SYS_cachestat;
	return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static bool has_cachestat(int fd)
{
	uint64_t range[2] = { 0, SEG }, counts[5];

	return syscall(SYS_cachestat, fd, range, counts, 0) == 0;
}

/* Loads each segment of a file that is not in the page cache. */
static void load_cold(void *driver)
{
	int fd = filled_file(SIZE, 1);
	uint8_t *m;

	set_budget(16 * SIZE);
	set_env("UMMAP_CACHED", "map");
	set_env("UMMAP_DRIVER", driver);
	check(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	if (!has_cachestat(fd))
		exit(0);
	m = map_file(fd, SIZE, SEG, PROT_READ, 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	asked = 0;
	check_bytes(m, SIZE, 0, 1);
	check(stat_of(m).read_bytes == SIZE, "the page cache had some of the file");
	check(asked == SEGS, "cachestat was called %u times for %zu segments", asked, SEGS);
	check(umunmap(m, 0) == 0);
}

Test(cold_read, asks_once_for_each_segment)
{
	check_exits(run_child(load_cold, "posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(load_cold, "uring"), 0);
}
