/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An access to what is absent, or a store to what is protected, raises SIGBUS in the accessing thread, which serves
 * itself: userfaultfd(2) without a second thread, and without rights, because accesses by the kernel fail (EFAULT). A
 * segment needs no VMA of its own, and no tables of pages move, which is what small segments spend their time on; but
 * its bytes are copied, so segments that are large are faster with segv. paged.c has how frames come and go.
 */
#include "engine/sigbus.h"

#include "base/sys.h"
#include "engine/engine.h"
#include "engine/paged.h"

static _Atomic bool started;
static _Atomic uint32_t starting; /* a lock */

/* The handler first: from the first mapping on accesses need it. */
int sigbus_start(void)
{
	struct guard g;
	int err = 0;

	if (started)
		return 0;
	guard_enter(&g);
	futex_lock(&starting);
	if (!started) {
		err = userfaultfd_open(&userfaultfd_signals);
		if (!err)
			err = sigsegv_start_bus();
		started = !err;
	}
	futex_unlock(&starting);
	guard_leave(&g);
	return err;
}

void sigbus_forget(void)
{
	userfaultfd_forget(&userfaultfd_signals);
	started = false;
	starting = 0;
}

static int adopt(char *range, size_t len)
{
	return paged_adopt(&userfaultfd_signals, range, len, true);
}

static int adopt_read(char *range, size_t len)
{
	return paged_adopt(&userfaultfd_signals, range, len, false);
}

static int adopt_pool(char *pool, size_t len)
{
	return userfaultfd_register(&userfaultfd_signals, pool, len, false);
}

/* Nobody waits: who cannot go on yet waits for the lock of a segment. */
static void wake(char *range, size_t len)
{
	(void)range;
	(void)len;
}

static int protect(char *range, size_t len, bool writable)
{
	return paged_protect(&userfaultfd_signals, range, len, writable);
}

static int map(char *range, char *pool, size_t len, bool was_writable, bool writable)
{
	(void)was_writable;
	return paged_map(&userfaultfd_signals, range, pool, len, writable);
}

static int map_read(char *range, char *pool, size_t len, bool was_writable, bool writable)
{
	(void)writable;
	return map(range, pool, len, was_writable, false);
}

static int copy_in(char *range, const char *from, size_t len, bool writable)
{
	return paged_copy_in(&userfaultfd_signals, range, from, len, writable);
}

static int unmap(char *range, char *pool, size_t len, bool writable, bool exposed)
{
	return paged_unmap(&userfaultfd_signals, range, pool, len, writable, exposed);
}

static int unmap_read(char *range, char *pool, size_t len, bool writable, bool exposed)
{
	(void)exposed;
	return unmap(range, pool, len, writable, false);
}

#define NEEDS "let the process use ioctl(2) on userfaultfd, and madvise(2) (a seccomp filter or an emulator may keep it from " \
	      "that), or try UMMAP_ENGINE=segv"

const struct engine engine_sigbus = {
	.needs = NEEDS, .stored_to = &engine_sigbus, .by_bus = true, .drops = true,
	.adopt = adopt, .adopt_pool = adopt_pool, .map = map, .copy_in = copy_in, .is_one = paged_is_one, .protect = protect, .unmap = unmap,
	.unmap_last = paged_unmap_last, .discard = paged_discard, .wake = wake,
};

const struct engine engine_sigbus_read = {
	.needs = NEEDS, .stored_to = &engine_sigbus, .by_bus = true, .drops = true,
	.adopt = adopt_read, .adopt_pool = adopt_pool, .map = map_read, .copy_in = copy_in, .is_one = paged_is_one, .protect = protect,
	.unmap = unmap_read, .unmap_last = paged_unmap_last, .discard = paged_discard, .wake = wake,
};
