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

const struct engine engine_sigbus = {
	.name = "sigbus", .number = UMMAP_ENGINE_SIGBUS, .needs = PAGED_NEEDS, .frames = &frames,
	.data = &userfaultfd_signals, .signal = SIGBUS, .pagecache = true,
	.best_up_to = (size_t)16 << 10,
	.start = start, .forget = forget,
	.prepare = paged_prepare, .map = paged_map, .copy_in = paged_copy_in,
	.protect = paged_protect, .unmap = paged_unmap, .discard = discard_place,
	.end_pagecache = engine_reset,
};
