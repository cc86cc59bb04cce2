/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The view is memory that the kernel reports accesses to; threads of ours read the reports, and whoever made the
 * access sleeps until the segment has been published, be it a load or store, a system call or another process. No
 * mapping of the kernel's is needed for a segment, so there may be any number of them.
 *
 * Pages move from home to where they may be stored to, without a copy. Moved pages can be stored to at once, so
 * what must not be is copied instead: that can be done so that each page appears protected. Either way its place at
 * home is empty then, and the frame's memory is in the view. A page that the kernel works on for somebody, and will
 * store to behind the back of all protection, does not move: its segment stays.
 *
 * The threads take turns: the one whose turn it is waits for the next access and serves it, and passes the turn on
 * only before it has to wait for something else. So an access that needs no I/O costs one switch of threads each way.
 * Never touches what stands in a view that may be absent: nobody would be left to serve it.
 */
#include "engine/engine.h"

#include "base/log.h"
#include "base/sys.h"
#include "engine/uffd.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic bool started;
static _Atomic uint32_t starting; /* a lock */
static _Atomic uint32_t turn;     /* a lock: who has it waits for the next access */
static _Thread_local bool my_turn __attribute__((tls_model("initial-exec")));
static _Thread_local bool gathers __attribute__((tls_model("initial-exec")));
static _Thread_local struct uffd_drops drops __attribute__((tls_model("initial-exec")));

/* ---- Threads ---- */

void engine_relieve(void)
{
	if (!my_turn)
		return;
	my_turn = false;
	futex_unlock(&turn);
}

bool engine_next(struct chain_fault *fault, bool wait)
{
	if (!my_turn && wait)
		futex_lock(&turn);
	else if (!my_turn && !futex_trylock(&turn))
		return false;
	my_turn = true;
	return uffd_next(&fault->addr, &fault->write, wait);
}

/* Under the lock, with signals blocked: the threads will never see one. */
static int start_threads(unsigned n, void *(*serve)(void *))
{
	pthread_attr_t attr;
	pthread_t thread;
	unsigned running = 0;
	int err = 0;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	while (running < n && !err) {
		err = pthread_create(&thread, &attr, serve, NULL);
		running += !err;
	}
	pthread_attr_destroy(&attr);
	return running ? 0 : fail(err, "no thread can be started to serve accesses: %s", strerror(err));
}

int engine_start_uffd(unsigned threads, void *(*serve)(void *))
{
	struct guard g;
	int err = 0;

	if (started)
		return 0;
	guard_enter(&g);
	futex_lock(&starting);
	if (!started) {
		err = uffd_open();
		if (!err)
			err = start_threads(threads, serve);
		started = !err;
	}
	futex_unlock(&starting);
	guard_leave(&g);
	return err;
}

bool engine_sees_kernel(void)
{
	return uffd_sees_kernel();
}

void engine_uffd_forget(void)
{
	uffd_forget();
	started = false;
	starting = turn = 0;
}

/* ---- Views ---- */

static int rights(enum engine e)
{
	return e == ENGINE_UFFD_READ ? PROT_READ : PROT_READ | PROT_WRITE;
}

int engine_uffd_adopt(enum engine e, char *view, size_t len)
{
	int err;

	/* The system must not put pages there by itself, huge ones in place of some. */
	madvise(view, len, MADV_NOHUGEPAGE);
	if (madvise(view, len, MADV_DONTFORK) < 0)
		return -errno;
	/* In this order: the system fills what is locked as soon as it gets rights, but not where it is watched. */
	err = uffd_register(view, len, true);
	return err ? err : engine_unbar(e, view, len);
}

int engine_uffd_discard(char *view, size_t len)
{
	return sys_drop(view, len);
}

static void drop(char *at, size_t len)
{
	if (len)
		sys_drop(at, len);
}

void engine_gather(void)
{
	gathers = true;
}

void engine_settle(void)
{
	uffd_drop_all(&drops);
	gathers = false;
}

/* The copy that a frame leaves behind. */
static void leave(char *at, size_t len)
{
	if (gathers)
		uffd_drop_later(&drops, at, len);
	else
		drop(at, len);
}

int engine_bar(char *view, size_t len)
{
	int err = mprotect(view, len, PROT_NONE) < 0 ? -errno : 0;

	uffd_wake(view, len);
	return err;
}

int engine_unbar(enum engine e, char *view, size_t len)
{
	return mprotect(view, len, rights(e)) < 0 ? -errno : 0;
}

/* ---- Frames ---- */

/* All of it or nothing, where nothing can be stored meanwhile. */
static int copy_over(char *to, char *from, size_t len, bool protect)
{
	size_t done;
	int err = uffd_copy(to, from, len, protect, &done);

	if (err)
		drop(to, done);
	else
		leave(from, len);
	return err;
}

int engine_uffd_protect(char *view, size_t len, bool writable)
{
	int err = uffd_protect(view, len, !writable);

	/* Nobody else would do so where rights are taken. */
	if (!writable)
		uffd_wake(view, len);
	return err;
}

/* Some of it has gone home already. */
static int undo_retract(char *view, char *home, size_t len, bool writable, int err)
{
	if (len)
		engine_uffd_publish(view, home, len, writable);
	return err;
}

static int retract_moving(char *view, char *home, size_t len, bool writable)
{
	size_t moved;
	int err = uffd_move(home, view, len, &moved);

	return err ? undo_retract(view, home, moved, writable, err) : 0;
}

/* What was never exposed nobody can be storing to: copies can leave many views together, moves one at a time. */
static int retract(enum engine e, char *view, char *home, size_t len, bool writable, bool exposed)
{
	int err;

	if (e == ENGINE_UFFD && uffd_moves() && exposed)
		return retract_moving(view, home, len, writable);
	err = writable ? uffd_protect(view, len, true) : 0;
	if (!err)
		err = copy_over(home, view, len, false);
	if (err && writable)
		uffd_protect(view, len, false);
	return err;
}

int engine_uffd_retract(enum engine e, char *view, char *home, size_t len, bool writable, bool exposed)
{
	int err = retract(e, view, home, len, writable, exposed);

	if (err != -EEXIST)
		return err;
	/* The home is full though its frame is away: by mlockall(2), which fills all that may be stored to. */
	drop(home, len);
	return retract(e, view, home, len, writable, exposed);
}

/* What does not move is copied. If that fails, all goes back. */
static int publish_writable(char *view, char *home, size_t len)
{
	size_t moved = 0, copied = 0;
	int err = -EOPNOTSUPP;

	if (uffd_moves())
		err = uffd_move(view, home, len, &moved);
	if (err)
		err = uffd_copy(view + moved, home + moved, len - moved, false, &copied);
	drop(home + moved, copied);
	if (err && moved + copied)
		engine_uffd_retract(ENGINE_UFFD, view, home, moved + copied, true, true);
	return err;
}

int engine_uffd_publish(char *view, char *home, size_t len, bool writable)
{
	return writable ? publish_writable(view, home, len) : copy_over(view, home, len, true);
}
