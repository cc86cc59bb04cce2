/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine segv: frames move by mremap(2), in one system call, which is atomic for all other
 * threads and copies nothing. The order of the calls ensures that no store is lost: a frame gets
 * its final rights in the pool, before it is visible; and a place in the mapped range is never
 * writable without its frame. Takes no lock; callers hold the segment's.
 *
 * Every change of rights interrupts the other processors that run this process, so few calls are
 * better than many. When a frame is unmapped, its place is empty for a moment: the library still
 * serves a fault there, but an mmap(2) of another thread could get that place. Therefore mapped
 * ranges are in a part of the address space that the kernel never chooses. In a range for which
 * that part has no room, the place is poisoned first, which costs one more call.
 */
#include "engine/range.h"

#include "base/sys.h"

#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ummap.h>

static bool move_memory(char *from, char *to, size_t len, int flags)
{
	return raw_mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) != MAP_FAILED;
}

static int to_prot(bool writable)
{
	return writable ? PROT_READ | PROT_WRITE : PROT_READ;
}

static int map_frame(const struct engine *e, char *range, char *pool, size_t len, bool was_writable,
		     bool writable)
{
	(void)e;
	if (writable != was_writable && mprotect(pool, len, to_prot(writable)) < 0)
		return sys_note_failure("mprotect(2)");
	if (!move_memory(pool, range, len, MREMAP_DONTUNMAP)) {
		int err = sys_note_failure("mremap(2) with MREMAP_DONTUNMAP");

		if (writable != was_writable)
			mprotect(pool, len, to_prot(was_writable));
		return err;
	}
	return 0;
}

/* Requests a growth for which there is never room, because the stack of the first thread is in the
 * way. If the memory is several VMAs, the kernel refuses this before it looks for room, with
 * another error (EFAULT). A request for the present size would not do: Linux 6.17 and later accept
 * it for several VMAs. */
static bool is_one_vma(char *at, size_t len)
{
	uintptr_t stack = getauxval(AT_RANDOM);
	size_t too_long = round_up(stack + 1 - (uintptr_t)at, sys_page());

	return stack >= (uintptr_t)at + len &&
	       raw_mremap(at, len, too_long, 0, NULL) == MAP_FAILED &&
	       (errno == ENOMEM || errno == EAGAIN);
}

static int protect_range(const struct engine *e, char *range, size_t len, bool writable)
{
	(void)e;
	return mprotect(range, len, to_prot(writable)) < 0 ? sys_note_failure("mprotect(2)") : 0;
}

static int unmap_poisoned(char *range, char *pool, size_t len, bool writable)
{
	if (mprotect(range, len, PROT_NONE) < 0)
		return sys_note_failure("mprotect(2)");
	if (!move_memory(range, pool, len, MREMAP_DONTUNMAP)) {
		int err = sys_note_failure("mremap(2) with MREMAP_DONTUNMAP");

		mprotect(range, len, to_prot(writable));
		return err;
	}
	mprotect(pool, len, to_prot(writable));
	return 0;
}

static int unmap_frame(const struct engine *e, char *range, char *pool, size_t len, bool writable,
		       bool exposed)
{
	(void)e;
	(void)exposed;
	if (!sys_is_apart(range)) {
		int err = unmap_poisoned(range, pool, len, writable);

		if (err)
			return err;
	} else if (!move_memory(range, pool, len, 0)) {
		return sys_note_failure("mremap(2)");
	}
	/* A new mapping merges with the empty places around it; the rest that mremap(2) may leave
	 * never does. */
	engine_empty(range, len);
	return 0;
}

/* Elsewhere, an mmap(2) of another thread could take an empty place. */
static int unmap_frame_last(char *range, char *pool, size_t len)
{
	if (!sys_is_apart(range))
		return -EOPNOTSUPP;
	return move_memory(range, pool, len, 0) ? 0 : -errno;
}

static const struct frame_type frames = { .whole = true, .block = HUGE_PAGE };

const struct engine engine_segv = {
	.name = "segv", .number = UMMAP_ENGINE_SEGV,
	.needs = "to let the process use mmap(2), mprotect(2), madvise(2), and mremap(2) with "
		 "MREMAP_DONTUNMAP (a seccomp filter or an emulator may forbid them), or no "
		 "UMMAP_ENGINE, so that the library chooses the engine",
	.frames = &frames, .signal = SIGSEGV, .pagecache = true, .shares = true,
	.refuses_kernel = true, .best_up_to = SIZE_MAX,
	.map = map_frame, .is_one = is_one_vma, .protect = protect_range, .unmap = unmap_frame,
	.unmap_last = unmap_frame_last, .discard = engine_empty,
};
