/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that map memory. If the library cannot do a call on a region, the region is handed to
 * the kernel, which does the call. Calls of the library itself pass unchanged in all threads and
 * signal handlers.
 */
#include "common/memory_calls.h"
#include "umrun/heap.h"
#include "umrun/list.h"
#include "umrun/next_calls.h"
#include "umrun/process.h"
#include "umrun/region.h"

#include <ummap.h>

const struct heap_calls *heap_calls;

static void *map_file(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *result = NULL;

	/* The library keeps the whole range of the heap. */
	if (flags & MAP_FIXED && heap_left(addr)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	list_lock_write();
	if (flags & MAP_FIXED &&
	    region_hand_back_range(addr, len, "the program maps other memory there") < 0)
		result = MAP_FAILED;
	/* Only the kernel maps at an address that the program asks for. The stores of a child of
	 * vfork(2) or clone(2) would not be written at its end. */
	if (!result && !addr && is_own_process())
		result = region_map(len, prot, flags, fd, off);
	if (!result && region_note_kernel_mapping(prot, flags, fd) < 0)
		result = MAP_FAILED;
	if (!result)
		result = kernel_mmap(addr, len, prot, flags, fd, off);
	if (flags & MAP_FIXED && result != MAP_FAILED)
		region_forget_zeros(addr, len);
	list_unlock();
	return result;
}

void *take_mmap(const void *caller, void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *result = NULL;

	if (next_is_library(caller))
		return kernel_mmap(addr, len, prot, flags, fd, off);
	/* Most calls map private memory where nothing is mapped. */
	if ((flags & (MAP_ANONYMOUS | MAP_FIXED)) != MAP_ANONYMOUS)
		return map_file(addr, len, prot, flags, fd, off);
	if (heap_calls)
		result = heap_calls->map(addr, len, prot, flags);
	return result ? result : kernel_mmap(addr, len, prot, flags, fd, off);
}

/* The kernel reports what is wrong with other addresses. */
static bool is_page(const void *addr)
{
	return (uintptr_t)addr % page_bytes() == 0;
}

int take_munmap(void *addr, size_t len)
{
	struct region *r;
	int result;

	if (heap_left(addr))
		return heap_calls->unmap(addr, len);
	list_lock_write();
	r = list_find(addr, len);
	if (r && is_page(addr) && len && (char *)addr >= r->addr &&
	    round_to_pages(len) <= (size_t)(r->addr + r->len - (char *)addr))
		result = region_unmap_part(r, addr, round_to_pages(len));
	else if (region_hand_back_range(addr, len, "the program unmaps a part") < 0)
		result = -1;
	else
		result = kernel_munmap(addr, len);
	list_unlock();
	return result;
}

/* Replaces a read-only region by a longer one. */
static void *move_region(struct region *r, size_t len)
{
	void *moved = region_map(len, r->prot, r->flags, r->fd, r->off);

	if (moved)
		region_unmap(r);
	return moved;
}

void *take_mremap(const void *caller, void *old, size_t old_len, size_t len, int flags,
		  void *wanted)
{
	static const char remaps[] = "the program calls mremap";
	void *result = NULL;
	struct region *r;

	if (heap_calls)
		result = heap_calls->grow_inherited(old, old_len, len, flags);
	if (result)
		return result;
	if (!region_count || next_is_library(caller))
		return kernel_mremap(old, old_len, len, flags, wanted);
	if (heap_left(old))
		return heap_calls->remap(old, old_len, len, flags);
	list_lock_write();
	r = list_find(old, old_len ? old_len : 1);
	if (r && r->addr == old && r->len == round_to_pages(old_len) && len > old_len &&
	    flags == MREMAP_MAYMOVE && !r->is_writable)
		result = move_region(r, len);
	if (!result && (region_hand_back_range(old, old_len ? old_len : 1, remaps) < 0 ||
			(wanted && region_hand_back_range(wanted, len, remaps) < 0)))
		result = MAP_FAILED;
	if (!result)
		result = kernel_mremap(old, old_len, len, flags, wanted);
	if (wanted && result != MAP_FAILED)
		region_forget_zeros(wanted, len);
	list_unlock();
	return result;
}

int take_mprotect(void *addr, size_t len, int prot)
{
	const struct region *r;
	int result = 0;

	/* The heap keeps its rights, except that memory cannot be made executable. */
	if (heap_left(addr)) {
		if (prot & PROT_EXEC)
			errno = EACCES;
		return prot & PROT_EXEC ? -1 : 0;
	}
	list_lock_write();
	r = list_find(addr, len);
	if (!r || r->prot != prot || !is_page(addr) || (char *)addr < r->addr ||
	    round_to_pages(len) > (size_t)(r->addr + r->len - (char *)addr))
		result = region_hand_back_range(addr, len, "the program calls mprotect") < 0 ||
			 region_note_kernel_rights(addr, len, prot) < 0 ? -1 :
				kernel_mprotect(addr, len, prot);
	list_unlock();
	return result;
}

/* ---- Calls on ranges, of which the library has some parts and the kernel has others ---- */

typedef int (*part_call)(void *addr, size_t len, int how);

/* Calls by_library for the parts of the range that the library has, and by_kernel for the rest,
 * until one fails. */
static int each_part(void *addr, size_t len, int how, part_call by_library, part_call by_kernel)
{
	char *at = addr, *end = at + round_to_pages(len);
	int result = 0;

	if (heap_left(addr))
		return by_library(addr, len, how);
	list_lock_read();
	while (at < end && result == 0) {
		const struct region *r = list_find(at, (size_t)(end - at));
		char *until = r && r->addr > at ? r->addr : end;

		if (r && r->addr <= at && at < r->addr + r->library_len) {
			until = end < r->addr + r->library_len ? end : r->addr + r->library_len;
			result = by_library(at, (size_t)(until - at), how);
		} else {
			if (r && r->addr <= at)
				until = end < r->addr + r->len ? end : r->addr + r->len;
			result = by_kernel(at, (size_t)(until - at), how);
		}
		at = until;
	}
	list_unlock();
	return result;
}

static int sync_library(void *addr, size_t len, int flags)
{
	if (heap_left(addr))
		return 0;
	return umsync_range(addr, len, (flags & MS_ASYNC ? UMMAP_ASYNC : 0) |
			    (flags & MS_INVALIDATE ? UMMAP_EVICT : 0));
}

static bool are_sync_flags(int flags)
{
	return !(flags & ~(MS_SYNC | MS_ASYNC | MS_INVALIDATE)) &&
	       (flags & (MS_SYNC | MS_ASYNC)) != (MS_SYNC | MS_ASYNC);
}

int take_msync(void *addr, size_t len, int flags)
{
	if (!is_page(addr) || !are_sync_flags(flags))
		return kernel_msync(addr, len, flags);
	return each_part(addr, len, flags, sync_library, kernel_msync);
}

/* UMMAP_ADV_NORMAL to UMMAP_ADV_DONTNEED are the kernel's numbers. Other advice that only tells
 * about future use has no effect. */
static int advise_library(void *addr, size_t len, int advice)
{
	static const int ignored[] = { MADV_DONTDUMP, MADV_DODUMP, MADV_DOFORK, MADV_KEEPONFORK,
				       MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE,
				       MADV_UNMERGEABLE, MADV_COLD, MADV_PAGEOUT };

	if (advice >= MADV_NORMAL && advice <= MADV_DONTNEED)
		return umadvise(addr, len, advice);
	/* Loads as much as the budget has room for. */
	if (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE)
		return umadvise(addr, len, UMMAP_ADV_WILLNEED);
	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++) {
		if (advice == ignored[i])
			return 0;
	}
	errno = EINVAL;
	return -1;
}

/* Whether the advice is more than a statement about future use. */
static bool changes_contents(int advice)
{
	return advice == MADV_REMOVE || advice == MADV_FREE || advice == MADV_DONTFORK ||
	       advice == MADV_WIPEONFORK;
}

static int advise_range(void *addr, size_t len, int advice)
{
	if (heap_left(addr) && is_page(addr))
		return heap_calls->advise(addr, len, advice);
	if (changes_contents(advice)) {
		int result;

		list_lock_write();
		result = region_hand_back_range(addr, len, "the program calls madvise") < 0 ? -1 :
			 kernel_madvise(addr, len, advice);
		list_unlock();
		return result;
	}
	return is_page(addr) ? each_part(addr, len, advice, advise_library, kernel_madvise) :
	       kernel_madvise(addr, len, advice);
}

int take_madvise(const void *caller, void *addr, size_t len, int advice)
{
	/* The kernel would show the contents of the file behind the child's mapping. */
	if (advice == MADV_DONTNEED && heap_calls && heap_calls->clear_inherited(addr, len))
		return 0;
	if (!region_count || next_is_library(caller))
		return kernel_madvise(addr, len, advice);
	return advise_range(addr, len, advice);
}

int take_posix_madvise(void *addr, size_t len, int advice)
{
	int error = errno, result;

	/* This advice of posix_madvise(3) never discards contents. */
	if (advice == POSIX_MADV_DONTNEED)
		return 0;
	result = region_count ? advise_range(addr, len, advice) : kernel_madvise(addr, len, advice);
	result = result < 0 ? errno : 0;
	errno = error;
	return result;
}

/* The library may evict memory that is locked with MLOCK_ONFAULT. */
enum { UNLOCK, LOCK, LOCK_LATER };

/* A range that is not locked may be unlocked. */
static int lock_library(void *addr, size_t len, int how)
{
	if (how == UNLOCK)
		umunpin(addr, len);
	return how == LOCK ? umpin(addr, len, PROT_READ) : 0;
}

static int kernel_lock(void *addr, size_t len, int how)
{
	return how == LOCK_LATER ? kernel_mlock2(addr, len, MLOCK_ONFAULT) :
	       how == LOCK ? kernel_mlock(addr, len) : kernel_munlock(addr, len);
}

static int lock_parts(const void *addr, size_t len, int how)
{
	void *from = (void *)((uintptr_t)addr & ~(page_bytes() - 1));

	return each_part(from, len + (size_t)((const char *)addr - (char *)from), how, lock_library,
			 kernel_lock);
}

int take_mlock(const void *addr, size_t len)
{
	return lock_parts(addr, len, LOCK);
}

int take_mlock2(const void *addr, size_t len, unsigned flags)
{
	if (flags & ~(unsigned)MLOCK_ONFAULT)
		return kernel_mlock2(addr, len, flags);
	return lock_parts(addr, len, flags ? LOCK_LATER : LOCK);
}

int take_munlock(const void *addr, size_t len)
{
	return lock_parts(addr, len, UNLOCK);
}
