/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mapped range is memory that the kernel reports accesses to; threads of ours read the reports, and whoever made the
 * access sleeps until the segment has been published, be it a load or store, a system call or another process. No
 * mapping of the kernel's is needed for a segment, so there may be any number of them.
 *
 * Pages move from the pool to where they may be stored to, without a copy. Moved pages can be stored to at once, so
 * what must not be is copied instead: that can be done so that each page appears protected. Either way its place in the
 * pool is empty then, and the frame's memory is mapped. A page that the kernel works on for somebody, and will
 * store to behind the back of all protection, does not move: its segment stays.
 *
 * The threads take turns: the one whose turn it is waits for the next access and serves it, and passes the turn on
 * only before it has to wait for something else. So an access that needs no I/O costs one switch of threads each way.
 * Never touches what stands in a mapped range that may be absent: nobody would be left to serve it.
 */
#include "engine/engine.h"

#include "base/log.h"
#include "base/sys.h"
#include "engine/uffd.h"
#include "engine/userfaultfd.h"

#include <string.h>
#include <sys/mman.h>

static _Atomic bool started;
static _Atomic uint32_t starting; /* a lock */
static _Atomic uint32_t turn;     /* a lock: who has it waits for the next access */
static _Thread_local bool my_turn __attribute__((tls_model("initial-exec")));
static _Thread_local bool batching __attribute__((tls_model("initial-exec")));
static _Thread_local struct userfaultfd_drops drops __attribute__((tls_model("initial-exec")));

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
	return running ? 0 : fail(-err, "no thread can be started to serve accesses: %s", strerror(-err));
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
		err = userfaultfd_open();
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
	userfaultfd_forget();
	started = false;
	starting = turn = 0;
}

/* ---- Mapped ranges ---- */

static int poison(char *range, size_t len)
{
	int err = mprotect(range, len, PROT_NONE) < 0 ? -errno : 0;

	userfaultfd_wake(range, len);
	return err;
}

static int unpoison(char *range, size_t len)
{
	return mprotect(range, len, PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}

static int unpoison_read(char *range, size_t len)
{
	return mprotect(range, len, PROT_READ) < 0 ? -errno : 0;
}

static int watch(char *range, size_t len)
{
	/* The system must not put pages there by itself, huge ones in place of some. */
	madvise(range, len, MADV_NOHUGEPAGE);
	if (madvise(range, len, MADV_DONTFORK) < 0)
		return -errno;
	return userfaultfd_register(range, len, true);
}

/* In this order: the system fills what is locked as soon as it gets rights, but not where it is watched. */
static int adopt(char *range, size_t len)
{
	int err = watch(range, len);

	return err ? err : unpoison(range, len);
}

static int adopt_read(char *range, size_t len)
{
	int err = watch(range, len);

	return err ? err : unpoison_read(range, len);
}

static int adopt_pool(char *pool, size_t len)
{
	return userfaultfd_register(pool, len, false);
}

static int discard(char *range, size_t len)
{
	return sys_drop(range, len);
}

static void wake(char *range, size_t len)
{
	userfaultfd_wake(range, round_up(len, sys_page()));
}

static bool is_one(char *at, size_t len)
{
	(void)at;
	(void)len;
	return true;
}

static void drop(char *at, size_t len)
{
	if (len)
		sys_drop(at, len);
}

void engine_batch_begin(void)
{
	batching = true;
}

void engine_batch_end(void)
{
	userfaultfd_drop_all(&drops);
	batching = false;
}

/* The copy that a frame leaves behind. */
static void leave(char *at, size_t len)
{
	if (batching)
		userfaultfd_drop_later(&drops, at, len);
	else
		drop(at, len);
}

/* ---- Frames ---- */

/* All of it or nothing, where nothing can be stored meanwhile. */
static int copy_over(char *to, char *from, size_t len, bool protect)
{
	size_t done;
	int err = userfaultfd_copy(to, from, len, protect, &done);

	if (err)
		drop(to, done);
	else
		leave(from, len);
	return err;
}

static int map_readonly(char *range, char *pool, size_t len, bool was_writable, bool writable)
{
	(void)was_writable;
	(void)writable;
	return copy_over(range, pool, len, true);
}

static int protect(char *range, size_t len, bool writable)
{
	int err = userfaultfd_protect(range, len, !writable);

	/* Nobody else would do so where rights are taken. */
	if (!writable)
		userfaultfd_wake(range, len);
	return err;
}

/* What was never exposed nobody can be storing to: copies can leave many ranges together, moves one at a time. */
static int try_copy_back(char *range, char *pool, size_t len, bool writable)
{
	int err = writable ? userfaultfd_protect(range, len, true) : 0;

	if (!err)
		err = copy_over(pool, range, len, false);
	if (err && writable)
		userfaultfd_protect(range, len, false);
	return err;
}

/* The pool may be full there though the frame is away: by mlockall(2), which fills all that may be stored to. */
static int copy_back(char *range, char *pool, size_t len, bool writable)
{
	int err = try_copy_back(range, pool, len, writable);

	if (err != -EEXIST)
		return err;
	drop(pool, len);
	return try_copy_back(range, pool, len, writable);
}

static int map(char *range, char *pool, size_t len, bool was_writable, bool writable);

/* If some of it has gone back already, it returns. */
static int try_move_back(char *range, char *pool, size_t len, bool writable)
{
	size_t moved;
	int err = userfaultfd_move(pool, range, len, &moved);

	if (err && moved)
		map(range, pool, moved, writable, writable);
	return err;
}

static int move_back(char *range, char *pool, size_t len, bool writable)
{
	int err = try_move_back(range, pool, len, writable);

	if (err != -EEXIST)
		return err;
	drop(pool, len);
	return try_move_back(range, pool, len, writable);
}

static int unmap(char *range, char *pool, size_t len, bool writable, bool exposed)
{
	if (userfaultfd_moves() && exposed)
		return move_back(range, pool, len, writable);
	return copy_back(range, pool, len, writable);
}

static int unmap_read(char *range, char *pool, size_t len, bool writable, bool exposed)
{
	(void)exposed;
	return copy_back(range, pool, len, writable);
}

static int unmap_last(char *range, char *pool, size_t len)
{
	(void)range;
	(void)pool;
	(void)len;
	return -EOPNOTSUPP;
}

/* What does not move is copied. If that fails, all goes back. */
static int map_writable(char *range, char *pool, size_t len)
{
	size_t moved = 0, copied = 0;
	int err = -EOPNOTSUPP;

	if (userfaultfd_moves())
		err = userfaultfd_move(range, pool, len, &moved);
	if (err)
		err = userfaultfd_copy(range + moved, pool + moved, len - moved, false, &copied);
	drop(pool + moved, copied);
	if (err && moved + copied)
		unmap(range, pool, moved + copied, true, true);
	return err;
}

static int map(char *range, char *pool, size_t len, bool was_writable, bool writable)
{
	return writable ? map_writable(range, pool, len) : map_readonly(range, pool, len, was_writable, false);
}

/* ---- The tables ---- */

#define NEEDS "let the process use ioctl(2) on userfaultfd, and madvise(2) (a seccomp filter or an emulator may keep it from " \
	      "that), or try UMMAP_ENGINE=segv"

const struct engine engine_uffd = {
	.needs = NEEDS, .stored_to = &engine_uffd,
	.by_message = true, .pins_block = true,
	.adopt = adopt, .adopt_pool = adopt_pool, .map = map, .is_one = is_one, .protect = protect, .unmap = unmap,
	.unmap_last = unmap_last, .discard = discard, .wake = wake, .poison = poison, .unpoison = unpoison,
};

const struct engine engine_uffd_read = {
	.needs = NEEDS, .stored_to = &engine_uffd,
	.by_message = true, .pins_block = true,
	.adopt = adopt_read, .adopt_pool = adopt_pool, .map = map_readonly, .is_one = is_one, .protect = protect, .unmap = unmap_read,
	.unmap_last = unmap_last, .discard = discard, .wake = wake, .poison = poison, .unpoison = unpoison_read,
};
