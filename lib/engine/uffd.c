/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine uffd: the kernel reports accesses by messages of userfaultfd(2) (messages.c). A
 * segment needs no VMA of its own, so there may be any number of segments. paged.c moves the
 * frames. A page that the kernel holds for a transfer must stay where it is, and only UFFDIO_MOVE
 * detects such pages: kernels without it (before Linux 6.8) are refused.
 */
#include "base/log.h"
#include "base/sys.h"
#include "engine/messages.h"
#include "engine/paged.h"

#include <sys/mman.h>
#include <ummap.h>

#define RIGHTS "root, CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd"

static bool sees_kernel(void)
{
	return userfaultfd_messages.sees_kernel;
}

static int start(const struct engine_wish *wish)
{
	static _Atomic bool has_warned;
	int err = userfaultfd_open(&userfaultfd_messages, messages_start);

	if (err || sees_kernel())
		return err;
	if (wish->kernel)
		return fail(EPERM, "cannot use UMMAP_KERNEL: this process has no right to handle "
			    "accesses by the kernel. Try " RIGHTS);
	if (!atomic_exchange(&has_warned, true))
		log_line(LOG_WARN, "engine", "cannot handle accesses by the kernel: this process "
			 "has no right to do so. System calls on absent segments fail with EFAULT, "
			 "as with the engine segv. Try " RIGHTS);
	return 0;
}

static void forget(void)
{
	userfaultfd_forget(&userfaultfd_messages);
	messages_forget();
}

static int prepare_pool(char *pool, size_t len)
{
	return userfaultfd_register(&userfaultfd_messages, pool, len, false);
}

static void wake_range(const struct engine *e, char *range, size_t len)
{
	userfaultfd_wake(e->data, range, round_up(len, sys_page()));
}

static int poison_range(const struct engine *e, char *range, size_t len)
{
	int err = mprotect(range, len, PROT_NONE) < 0 ? -errno : 0;

	userfaultfd_wake(e->data, range, len);
	return err;
}

static int unpoison_range(const struct engine *e, char *range, size_t len, bool writable)
{
	(void)e;
	return mprotect(range, len, writable ? PROT_READ | PROT_WRITE : PROT_READ) < 0 ? -errno : 0;
}

static int protect_range(const struct engine *e, char *range, size_t len, bool writable)
{
	int err = paged_protect(e, range, len, writable);

	/* The kernel wakes no thread when rights are revoked. */
	if (!writable)
		userfaultfd_wake(e->data, range, len);
	return err;
}

/* Small pages get memory 64 KiB at a time, because a fault waits for all of it. */
static const struct frame_type frames = { .block = (size_t)64 << 10, .prepare = prepare_pool };
/* The kernel stores to no page of a read-only mapping, so pages that it holds may be discarded. */
static const struct frame_type copied_frames = { .copied = true, .prepare = prepare_pool };

const struct engine engine_uffd = {
	.name = "uffd", .number = UMMAP_ENGINE_UFFD, .needs = PAGED_NEEDS, .frames = &frames,
	.copied_frames = &copied_frames, .data = &userfaultfd_messages, .refuses_pinned = true,
	.start = start, .forget = forget, .sees_kernel = sees_kernel,
	.prepare = paged_prepare, .map = paged_map, .copy_in = paged_copy_in,
	.move_in = paged_move_in, .move_out = paged_move_out,
	.protect = protect_range, .unmap = paged_unmap,
	.discard = discard_place, .wake = wake_range, .poison = poison_range,
	.unpoison = unpoison_range,
};
