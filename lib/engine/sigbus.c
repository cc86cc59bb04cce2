/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An access to what is absent, or a store to what is protected, raises SIGBUS in the accessing thread, which serves
 * itself: userfaultfd(2) without a second thread, and without rights, because accesses by the kernel fail (EFAULT). A
 * segment needs no VMA of its own, and no tables of pages move, which is what small segments spend their time on; but
 * its bytes are copied, so segments that are large are faster with segv. paged.c has how frames come and go.
 */
#include "engine/sigbus.h"

#include "base/sys.h"
#include "engine/paged.h"
#include "engine/sigsegv.h"

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

/* Nobody waits: who cannot go on yet waits for the lock of a segment. */
static void wake(const struct engine *e, char *range, size_t len)
{
	(void)e;
	(void)range;
	(void)len;
}

#define ALL \
	.needs = PAGED_NEEDS, .stored_to = &engine_sigbus, .by_bus = true, .drops = true, .page_cache = true, .uffd = &userfaultfd_signals, \
	.adopt = paged_adopt, .adopt_pool = paged_adopt_pool, .map = paged_map, .copy_in = paged_copy_in, .is_one = paged_is_one, \
	.protect = paged_protect, .unmap = paged_unmap, .unmap_last = paged_unmap_last, .discard = paged_discard, .wake = wake

const struct engine engine_sigbus = { ALL };
const struct engine engine_sigbus_read = { ALL, .loads_only = true };
