/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine sigbus: an access to an absent place, or a store to a protected one, raises SIGBUS in
 * the accessing thread, which serves itself. This is userfaultfd(2) without a second thread, and
 * without rights, because accesses by the kernel fail (EFAULT). A segment needs no VMA of its own,
 * and the kernel moves no page tables, which take most of the time for small segments. The bytes
 * are copied, so large segments are faster with segv. paged.c moves the frames.
 */
#include "base/sys.h"
#include "engine/paged.h"
#include "engine/range.h"
#include "engine/sigsegv.h"

#include <ummap.h>

/* The signal handler comes before the first mapping, whose accesses need it. */
static int start(const struct engine_wish *wish)
{
	(void)wish;
	return userfaultfd_open(&userfaultfd_signals, sigsegv_start_bus);
}

static void forget(void)
{
	userfaultfd_forget(&userfaultfd_signals);
}

static int prepare_pool(char *pool, size_t len)
{
	return userfaultfd_register(&userfaultfd_signals, pool, len, false);
}

static const struct frame_type frames = { .copied = true, .prepare = prepare_pool };

static int share(char *range, size_t len, int object, int64_t off)
{
	if (raw_mmap(range, len, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, object, off) ==
	    MAP_FAILED)
		return sys_note_failure("mmap(2)");
	/* A forked child would read zeros in place of pages that the object lacks. */
	if (raw_madvise(range, len, MADV_DONTFORK) < 0)
		return sys_note_failure("madvise(2) with MADV_DONTFORK");
	return userfaultfd_register_object(&userfaultfd_signals, range, len);
}

static int fill(char *range, const char *from, size_t len)
{
	size_t at = 0, done;
	int err = 0;

	for (; at < len && (!err || err == -EEXIST); at += done) {
		err = userfaultfd_copy(&userfaultfd_signals, range + at, from + at, len - at, false,
				       &done);
		/* The object has this page already. */
		if (err == -EEXIST)
			done += sys_page();
	}
	return at < len ? err : 0;
}

const struct engine engine_sigbus = {
	.name = "sigbus", .number = UMMAP_ENGINE_SIGBUS, .needs = PAGED_NEEDS, .frames = &frames,
	.copied_frames = &frames, .data = &userfaultfd_signals, .signal = SIGBUS, .pagecache = true,
	.best_up_to = (size_t)16 << 10,
	.start = start, .forget = forget,
	.prepare = paged_prepare, .map = paged_map, .copy_in = paged_copy_in,
	.move_in = paged_move_in, .move_out = paged_move_out,
	.protect = paged_protect, .unmap = paged_unmap, .discard = discard_place,
	.end_pagecache = engine_reset, .share = share, .fill = fill,
};
