/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only calls of mmap(2) at an address, munmap(2), mremap(2) and madvise(2) in the project.
 * Communication libraries (UCX within MPICH and Open MPI, Open MPI's own `patcher`) replace those
 * of the C library, to learn when memory that they have registered with a device is unmapped. Their
 * replacements take locks, and UCX's mremap(3) drops its fifth argument. Therefore the raw_ calls,
 * for memory of the library, which no device knows, go to the kernel directly. They may be made in
 * a signal handler. The hooked_ calls are for memory that the program has, and may have given to
 * its MPI. They must not be made in a signal handler.
 */
#ifndef COMMON_MEMORY_CALLS_H
#define COMMON_MEMORY_CALLS_H

#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Values that older headers lack. A kernel that does not know one answers EINVAL. */
#ifndef MREMAP_DONTUNMAP /* Linux 5.7, glibc 2.32 */
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_READ /* Linux 5.14, glibc 2.35 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED /* Linux 5.18, glibc 2.36 */
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE /* Linux 6.1, glibc 2.37 */
#define MADV_COLLAPSE 25
#endif

/* The thread sanitizer must see that memory is unmapped. Otherwise it compares accesses with those
 * to older contents. */
extern void __tsan_init(void) __attribute__((weak));

static inline void *raw_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, off);
}

static inline int raw_munmap(void *p, size_t len)
{
	return __tsan_init ? munmap(p, len) : (int)syscall(SYS_munmap, p, len);
}

/* Without MREMAP_FIXED, `to` has no effect. */
static inline void *raw_mremap(void *p, size_t old_len, size_t len, int flags, void *to)
{
	return (void *)syscall(SYS_mremap, p, old_len, len, flags, to);
}

static inline int raw_madvise(void *p, size_t len, int advice)
{
	return (int)syscall(SYS_madvise, p, len, advice);
}

static inline void *hooked_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return mmap(at, len, prot, flags, fd, off);
}

static inline int hooked_munmap(void *p, size_t len)
{
	return munmap(p, len);
}

/* Moves `from` to `to`, and replaces the mapping there. Calls that change nothing report both
 * ranges to the hooks. */
static inline void *hooked_move(void *from, void *to, size_t len)
{
	mremap(to, len, len, 0);
	mremap(from, len, len, 0);
	return raw_mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

#endif
