/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel reports accesses to the mapped range; threads of the library read the reports, and the accessing thread
 * sleeps until the segment is mapped, be it for a load or store, a system call or another process. A segment needs no
 * VMA of its own, so there may be any number of segments. paged.c has how frames come and go. A page that the kernel holds
 * for a transfer must stay where it is, which only UFFDIO_MOVE finds out: kernels without it (before Linux 6.8) are refused.
 *
 * The threads take turns: the one whose turn it is waits for the next access and serves it, and passes the turn on
 * only before it has to wait for something else. So an access that needs no I/O costs one switch of threads each way.
 * These threads never touch parts of a mapped range that may be absent: no thread would be left to serve the fault.
 */
#include "engine/uffd.h"

#include "base/log.h"
#include "base/sys.h"
#include "engine/paged.h"

#include <string.h>
#include <sys/mman.h>

static _Atomic bool started;
static _Atomic uint32_t starting; /* a lock */
static _Atomic uint32_t turn;     /* a lock: its holder waits for the next access */
static _Thread_local bool my_turn __attribute__((tls_model("initial-exec")));

/* ---- Threads ---- */

void engine_hand_off(void)
{
	if (!my_turn)
		return;
	my_turn = false;
	futex_unlock(&turn);
}

bool engine_next(struct fault *fault, bool wait)
{
	if (!my_turn && wait)
		futex_lock(&turn);
	else if (!my_turn && !futex_trylock(&turn))
		return false;
	my_turn = true;
	return userfaultfd_next(&fault->addr, &fault->write, wait);
}

/* Under the lock. */
static int start_threads(unsigned n, void *(*serve)(void *))
{
	unsigned running = 0;
	int err = 0;

	while (running < n && !err) {
		err = sys_thread(serve, NULL);
		running += !err;
	}
	return running ? 0 : fail(-err, "cannot start a thread to serve accesses: %s"
				  SYS_THREAD_LIMITS, strerror(-err));
}

int uffd_start(unsigned threads, void *(*serve)(void *))
{
	struct guard g;
	int err = 0;

	if (started)
		return 0;
	guard_enter(&g);
	futex_lock(&starting);
	if (!started) {
		err = userfaultfd_open(&userfaultfd_messages);
		if (!err)
			err = start_threads(threads, serve);
		started = !err;
	}
	futex_unlock(&starting);
	guard_leave(&g);
	return err;
}

void uffd_forget(void)
{
	userfaultfd_forget(&userfaultfd_messages);
	started = false;
	starting = turn = 0;
}

/* ---- Mapped ranges ---- */

static int poison(const struct engine *e, char *range, size_t len)
{
	int err = mprotect(range, len, PROT_NONE) < 0 ? -errno : 0;

	userfaultfd_wake(e->uffd, range, len);
	return err;
}

static int unpoison(const struct engine *e, char *range, size_t len)
{
	return mprotect(range, len, e->loads_only ? PROT_READ : PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}

static void wake(const struct engine *e, char *range, size_t len)
{
	userfaultfd_wake(e->uffd, range, round_up(len, sys_page()));
}

static int protect(const struct engine *e, char *range, size_t len, bool writable)
{
	int err = paged_protect(e, range, len, writable);

	/* Nobody else would do so where rights are taken. */
	if (!writable)
		userfaultfd_wake(e->uffd, range, len);
	return err;
}

#define ALL \
	.needs = PAGED_NEEDS, .stored_to = &engine_uffd, .by_message = true, .pins_block = true, .uffd = &userfaultfd_messages, \
	.adopt = paged_adopt, .adopt_pool = paged_adopt_pool, .map = paged_map, .is_one = paged_is_one, .protect = protect, \
	.unmap = paged_unmap, .unmap_last = paged_unmap_last, .discard = paged_discard, .wake = wake, .poison = poison, \
	.unpoison = unpoison

const struct engine engine_uffd = { ALL };
const struct engine engine_uffd_read = { ALL, .loads_only = true };
