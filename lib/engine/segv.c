/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames move by mremap: one system call, atomic for every other thread, no copy. The order of the calls ensures
 * that no store is lost: a frame gets its final rights in the pool, before it is visible; and a place in the mapped
 * range is never writable without its frame. Takes no lock; callers hold the segment's.
 *
 * Every change of rights interrupts the other processors that run this process, so the fewer calls the better. When a
 * frame is unmapped, nothing is mapped in its place for a moment: the library still serves a fault there, but an mmap
 * of another thread could get that place. So mapped ranges are in a part of the address space where the kernel maps
 * nothing by itself. For a range that finds no room there, the place is poisoned first, at the price of one more call.
 */
#include "engine/table.h"

#include "base/sys.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* Not mmap(3): a race detector that watches it takes this for a write to what the application sees there. Where the
 * process locks its memory, it must not be locked, or it would merge with nothing around it. */
static bool place(char *range, size_t len)
{
	if (!sys_locks && raw_mmap(range, len, PROT_NONE, PLACE | MAP_FIXED, -1, 0) != MAP_FAILED)
		return true;
	return sys_bare(range, len, PLACE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static bool move(char *from, char *to, size_t len, int flags)
{
	return raw_mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) != MAP_FAILED;
}

static int rights(bool writable)
{
	return writable ? PROT_READ | PROT_WRITE : PROT_READ;
}

static int map(const struct engine *e, char *range, char *pool, size_t len, bool was_writable, bool writable)
{
	(void)e;
	if (writable != was_writable && mprotect(pool, len, rights(writable)) < 0)
		return sys_failed("mprotect(2)");
	if (!move(pool, range, len, MREMAP_DONTUNMAP)) {
		int err = sys_failed("mremap(2) with MREMAP_DONTUNMAP");

		if (writable != was_writable)
			mprotect(pool, len, rights(was_writable));
		return err;
	}
	return 0;
}

/* Asks for growth that there is never room for, because the first thread's stack is in the way. Across mappings the
 * kernel refuses that before it looks for room, and for another reason (EFAULT). To ask for the size that it has would
 * not do: Linux 6.17 and later find nothing wrong with that, however many mappings there are. */
static bool is_one(char *at, size_t len)
{
	uintptr_t stack = getauxval(AT_RANDOM);
	size_t much = round_up(stack + 1 - (uintptr_t)at, sys_page());

	return stack >= (uintptr_t)at + len && raw_mremap(at, len, much, 0, NULL) == MAP_FAILED &&
	       (errno == ENOMEM || errno == EAGAIN);
}

static int protect(const struct engine *e, char *range, size_t len, bool writable)
{
	(void)e;
	return mprotect(range, len, rights(writable)) < 0 ? sys_failed("mprotect(2)") : 0;
}

static int unmap_poisoned(char *range, char *pool, size_t len, bool writable)
{
	if (mprotect(range, len, PROT_NONE) < 0)
		return sys_failed("mprotect(2)");
	if (!move(range, pool, len, MREMAP_DONTUNMAP)) {
		int err = sys_failed("mremap(2) with MREMAP_DONTUNMAP");

		mprotect(range, len, rights(writable));
		return err;
	}
	mprotect(pool, len, rights(writable));
	return 0;
}

static int unmap(const struct engine *e, char *range, char *pool, size_t len, bool writable, bool exposed)
{
	(void)e;
	(void)exposed;
	if (!sys_is_apart(range)) {
		int err = unmap_poisoned(range, pool, len, writable);

		if (err)
			return err;
	} else if (!move(range, pool, len, 0)) {
		return sys_failed("mremap(2)");
	}
	/* A fresh mapping merges with the empty places around it; what mremap may leave behind never would. */
	place(range, len);
	return 0;
}

/* Among other mappings, an mmap of another thread could take an empty place. */
static int unmap_last(char *range, char *pool, size_t len)
{
	if (!sys_is_apart(range))
		return -EOPNOTSUPP;
	return move(range, pool, len, 0) ? 0 : -errno;
}

static int discard(char *range, size_t len)
{
	return place(range, len) ? 0 : -errno;
}

static int adopt(const struct engine *e, char *range, size_t len)
{
	(void)e;
	(void)range;
	(void)len;
	return 0;
}

static void wake(const struct engine *e, char *range, size_t len)
{
	(void)e;
	(void)range;
	(void)len;
}

const struct engine engine_segv = {
	.stored_to = &engine_segv,
	.needs = "to let the process use mmap(2), mprotect(2), madvise(2), and mremap(2) with "
		 "MREMAP_DONTUNMAP (a seccomp filter or an emulator may forbid them), or no "
		 "UMMAP_ENGINE, so that the library chooses the engine",
	.vma_each = true, .moves_huge = true, .page_cache = true,
	.adopt = adopt, .adopt_pool = adopt, .map = map, .is_one = is_one, .protect = protect, .unmap = unmap,
	.unmap_last = unmap_last, .discard = discard, .wake = wake,
};
