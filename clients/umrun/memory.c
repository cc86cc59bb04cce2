/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that map memory. What of a region they cannot do as a whole is done by the kernel, to which the region is handed
 * before. Calls of the library itself pass through, in whatever thread and signal handler.
 */
#include "common/memory_calls.h"
#include "umrun/config.h"
#include "umrun/heap.h"
#include "umrun/next.h"
#include "umrun/region.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ummap.h>

static bool started;

__attribute__((constructor))
static void start(void)
{
	config_read();
	next_start();
	region_start();
	started = true;
}

static void *map(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *result = NULL;

	/* Of which the library goes on having all. */
	if (flags & MAP_FIXED && heap_left(addr)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	region_lock_change();
	if (flags & MAP_FIXED && region_hand_back_range(addr, len) < 0)
		result = MAP_FAILED;
	/* A program that wishes for an address is given it, where it is free, by the kernel only. */
	if (!result && !addr)
		result = region_map(len, prot, flags, fd, off);
	if (!result && region_share(prot, flags, fd) < 0)
		result = MAP_FAILED;
	if (!result)
		result = kernel_mmap(addr, len, prot, flags, fd, off);
	if (flags & MAP_FIXED && result != MAP_FAILED)
		region_forget_zeros(addr, len);
	region_unlock();
	return result;
}

static bool passes(const void *caller)
{
	return !started || next_is_library(caller);
}

static void *map_any(const void *caller, void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *result = NULL;

	if (passes(caller))
		return kernel_mmap(addr, len, prot, flags, fd, off);
	/* The most common one has nothing to do with files or regions. */
	if ((flags & (MAP_ANONYMOUS | MAP_FIXED)) != MAP_ANONYMOUS)
		return map(addr, len, prot, flags, fd, off);
	if (heap_calls)
		result = heap_calls->map(addr, len, prot, flags);
	return result ? result : kernel_mmap(addr, len, prot, flags, fd, off);
}

PUBLIC void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return map_any(__builtin_return_address(0), addr, len, prot, flags, fd, off);
}

PUBLIC void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return map_any(__builtin_return_address(0), addr, len, prot, flags, fd, off);
}

static size_t whole_pages(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (len + page - 1) & ~(page - 1);
}

/* What is wrong with other addresses is the kernel's to tell. */
static bool is_page(const void *addr)
{
	return (uintptr_t)addr % (size_t)sysconf(_SC_PAGESIZE) == 0;
}

PUBLIC int munmap(void *addr, size_t len)
{
	struct region *r;
	int result;

	if (!region_count || passes(__builtin_return_address(0)))
		return kernel_munmap(addr, len);
	if (heap_left(addr))
		return heap_calls->unmap(addr, len);
	region_lock_change();
	r = region_at(addr, len);
	if (r && r->addr == addr && r->len == whole_pages(len))
		result = region_end(r);
	else if (region_hand_back_range(addr, len) < 0)
		result = -1;
	else
		result = kernel_munmap(addr, len);
	region_unlock();
	return result;
}

/* What is only loaded from is mapped anew, and the old one ends. */
static void *move(struct region *r, size_t len)
{
	void *moved = region_map(len, r->prot, r->flags, r->fd, r->off);

	if (moved)
		region_end(r);
	return moved;
}

PUBLIC void *mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
	void *wanted = NULL, *result = NULL;
	struct region *r;
	va_list args;

	va_start(args, flags);
	if (flags & MREMAP_FIXED)
		wanted = va_arg(args, void *);
	va_end(args);
	if (heap_calls)
		result = heap_calls->grow_inherited(old, old_len, len, flags);
	if (result)
		return result;
	if (!region_count || passes(__builtin_return_address(0)))
		return (void *)syscall(SYS_mremap, old, old_len, len, flags, wanted);
	if (heap_left(old))
		return heap_calls->remap(old, old_len, len, flags);
	region_lock_change();
	r = region_at(old, old_len ? old_len : 1);
	if (r && r->addr == old && r->len == whole_pages(old_len) && len > old_len && flags == MREMAP_MAYMOVE && !r->writable)
		result = move(r, len);
	if (!result && (region_hand_back_range(old, old_len ? old_len : 1) < 0 ||
			(wanted && region_hand_back_range(wanted, len) < 0)))
		result = MAP_FAILED;
	if (!result)
		result = (void *)syscall(SYS_mremap, old, old_len, len, flags, wanted);
	if (wanted && result != MAP_FAILED)
		region_forget_zeros(wanted, len);
	region_unlock();
	return result;
}

PUBLIC int mprotect(void *addr, size_t len, int prot)
{
	const struct region *r;
	int result = 0;

	if (!region_count || passes(__builtin_return_address(0)))
		return (int)syscall(SYS_mprotect, addr, len, prot);
	/* Which only takes away, but for the right to run it. */
	if (heap_left(addr)) {
		if (prot & PROT_EXEC)
			errno = EACCES;
		return prot & PROT_EXEC ? -1 : 0;
	}
	region_lock_change();
	r = region_at(addr, len);
	if (!r || r->prot != prot || !is_page(addr) || (char *)addr < r->addr ||
	    whole_pages(len) > (size_t)(r->addr + r->len - (char *)addr))
		result = region_hand_back_range(addr, len) < 0 || region_share_range(addr, len, prot) < 0 ? -1 :
			 (int)syscall(SYS_mprotect, addr, len, prot);
	region_unlock();
	return result;
}

/* ---- Calls that are made for each part of a range: the library's, and the kernel's. ---- */

/* Calls `ours` for what of the range the library has, and `theirs` for the rest, until one fails. */
static int each_part(void *addr, size_t len, int how, int (*ours)(void *, size_t, int), int (*theirs)(void *, size_t, int))
{
	char *at = addr, *end = at + whole_pages(len);
	int result = 0;

	if (heap_left(addr))
		return ours(addr, len, how);
	region_lock_look();
	while (at < end && result == 0) {
		const struct region *r = region_at(at, (size_t)(end - at));
		char *until = r && r->addr > at ? r->addr : end;

		if (r && r->addr <= at && at < r->addr + r->ours) {
			until = end < r->addr + r->ours ? end : r->addr + r->ours;
			result = ours(at, (size_t)(until - at), how);
		} else {
			if (r && r->addr <= at)
				until = end < r->addr + r->len ? end : r->addr + r->len;
			result = theirs(at, (size_t)(until - at), how);
		}
		at = until;
	}
	region_unlock();
	return result;
}

static int sync_ours(void *addr, size_t len, int flags)
{
	if (heap_left(addr))
		return 0;
	return umsync_range(addr, len, (flags & MS_ASYNC ? UMMAP_ASYNC : 0) | (flags & MS_INVALIDATE ? UMMAP_EVICT : 0));
}

static int sync_theirs(void *addr, size_t len, int flags)
{
	return (int)syscall(SYS_msync, addr, len, flags);
}

static bool are_sync_flags(int flags)
{
	return !(flags & ~(MS_SYNC | MS_ASYNC | MS_INVALIDATE)) && (flags & (MS_SYNC | MS_ASYNC)) != (MS_SYNC | MS_ASYNC);
}

PUBLIC int msync(void *addr, size_t len, int flags)
{
	if (!region_count || !is_page(addr) || !are_sync_flags(flags) || passes(__builtin_return_address(0)))
		return sync_theirs(addr, len, flags);
	return each_part(addr, len, flags, sync_ours, sync_theirs);
}

static int advise_ours(void *addr, size_t len, int advice)
{
	switch (advice) {
	case MADV_NORMAL:
		return umadvise(addr, len, UMMAP_ADV_NORMAL);
	case MADV_RANDOM:
		return umadvise(addr, len, UMMAP_ADV_RANDOM);
	case MADV_SEQUENTIAL:
		return umadvise(addr, len, UMMAP_ADV_SEQUENTIAL);
	case MADV_WILLNEED:
		return umadvise(addr, len, UMMAP_ADV_WILLNEED);
	case MADV_DONTNEED:
		return umadvise(addr, len, UMMAP_ADV_DONTNEED);
	case MADV_DONTDUMP:
	case MADV_DODUMP:
	case MADV_DOFORK:
	case MADV_KEEPONFORK:
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
		return 0;
	default:
		errno = EINVAL;
		return -1;
	}
}

static int advise_theirs(void *addr, size_t len, int advice)
{
	return (int)syscall(SYS_madvise, addr, len, advice);
}

/* Of those that do not only say what will be used. */
static bool changes_contents(int advice)
{
	return advice == MADV_REMOVE || advice == MADV_FREE || advice == MADV_DONTFORK || advice == MADV_WIPEONFORK;
}

static int advise(void *addr, size_t len, int advice)
{
	if (heap_left(addr) && is_page(addr))
		return heap_calls->advise(addr, len, advice);
	if (changes_contents(advice)) {
		int result;

		region_lock_change();
		result = region_hand_back_range(addr, len) < 0 ? -1 : advise_theirs(addr, len, advice);
		region_unlock();
		return result;
	}
	return is_page(addr) ? each_part(addr, len, advice, advise_ours, advise_theirs) : advise_theirs(addr, len, advice);
}

PUBLIC int madvise(void *addr, size_t len, int advice)
{
	/* The kernel would show what the file had that the child's mapping is of. */
	if (advice == MADV_DONTNEED && heap_calls && heap_calls->clear_inherited(addr, len))
		return 0;
	if (!region_count || passes(__builtin_return_address(0)))
		return advise_theirs(addr, len, advice);
	return advise(addr, len, advice);
}

PUBLIC int posix_madvise(void *addr, size_t len, int advice)
{
	int error = errno, result;

	/* Which never throws anything away. */
	if (advice == POSIX_MADV_DONTNEED)
		return 0;
	result = region_count ? advise(addr, len, advice) : advise_theirs(addr, len, advice);
	result = result < 0 ? errno : 0;
	errno = error;
	return result;
}

static int lock_ours(void *addr, size_t len, int lock)
{
	if ((lock ? umpin(addr, len, PROT_READ) : umunpin(addr, len)) == 0)
		return 0;
	/* What was not locked may be unlocked. */
	return lock ? -1 : 0;
}

static int lock_theirs(void *addr, size_t len, int lock)
{
	return (int)syscall(lock ? SYS_mlock : SYS_munlock, addr, len);
}

/* What is to stay once it is loaded is not loaded now, and may go again. */
static int lock_ours_later(void *addr, size_t len, int flags)
{
	(void)addr, (void)len, (void)flags;
	return 0;
}

static int lock_theirs_later(void *addr, size_t len, int flags)
{
	return (int)syscall(SYS_mlock2, addr, len, flags);
}

static int each_lock(const void *addr, size_t len, int how, int (*ours)(void *, size_t, int), int (*theirs)(void *, size_t, int))
{
	void *from = (void *)((uintptr_t)addr & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1));

	return each_part(from, len + (size_t)((const char *)addr - (char *)from), how, ours, theirs);
}

PUBLIC int mlock(const void *addr, size_t len)
{
	if (!region_count || passes(__builtin_return_address(0)))
		return lock_theirs((void *)(uintptr_t)addr, len, 1);
	return each_lock(addr, len, 1, lock_ours, lock_theirs);
}

PUBLIC int mlock2(const void *addr, size_t len, unsigned flags)
{
	if (!region_count || flags & ~(unsigned)MLOCK_ONFAULT || passes(__builtin_return_address(0)))
		return lock_theirs_later((void *)(uintptr_t)addr, len, (int)flags);
	if (flags)
		return each_lock(addr, len, (int)flags, lock_ours_later, lock_theirs_later);
	return each_lock(addr, len, 1, lock_ours, lock_theirs);
}

PUBLIC int munlock(const void *addr, size_t len)
{
	if (!region_count || passes(__builtin_return_address(0)))
		return lock_theirs((void *)(uintptr_t)addr, len, 0);
	return each_lock(addr, len, 0, lock_ours, lock_theirs);
}

/* The library does not say which of its pages are in memory: as far as the program is concerned, all may be. */
PUBLIC int mincore(void *addr, size_t len, unsigned char *vec)
{
	const struct region *r;
	bool ours;

	if (region_count && is_page(addr) && !passes(__builtin_return_address(0))) {
		region_lock_look();
		r = region_at(addr, len);
		ours = heap_left(addr) >= len || (r && (char *)addr >= r->addr && (char *)addr + len <= r->addr + r->ours);
		region_unlock();
		if (ours) {
			memset(vec, 1, whole_pages(len) / (size_t)sysconf(_SC_PAGESIZE));
			return 0;
		}
	}
	return (int)syscall(SYS_mincore, addr, len, vec);
}
