/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages move from the pool to the mapped range without a copy. Moved pages are writable at once, so pages that must not
 * be written are copied instead: a copy can be mapped write-protected. Either way its place in the pool is empty then,
 * and the frame's memory is mapped. A page that the kernel has pinned for a transfer, and to which it will store
 * regardless of any protection, does not move: its segment stays mapped. A segment needs no VMA of its own. Takes no
 * lock; callers hold the segment's.
 */
#include "engine/paged.h"

#include "base/sys.h"
#include "engine/engine.h"

#include <sys/mman.h>

static _Thread_local bool batching __attribute__((tls_model("initial-exec")));
static _Thread_local struct userfaultfd_drops drops __attribute__((tls_model("initial-exec")));

/* In this order: the system fills what is locked as soon as it gets rights, but not where it is watched. */
int paged_adopt(const struct userfaultfd *u, char *range, size_t len, bool writable)
{
	int err;

	/* The system must not put pages there by itself, huge ones in place of some. */
	madvise(range, len, MADV_NOHUGEPAGE);
	if (madvise(range, len, MADV_DONTFORK) < 0)
		return -errno;
	err = userfaultfd_register(u, range, len, true);
	if (err)
		return err;
	return mprotect(range, len, writable ? PROT_READ | PROT_WRITE : PROT_READ) < 0 ? -errno : 0;
}

bool paged_is_one(char *at, size_t len)
{
	(void)at;
	(void)len;
	return true;
}

int paged_protect(const struct userfaultfd *u, char *range, size_t len, bool writable)
{
	return userfaultfd_protect(u, range, len, !writable);
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

int paged_discard(char *range, size_t len)
{
	if (!batching)
		return sys_drop(range, len);
	userfaultfd_drop_later(&drops, range, len);
	return 0;
}

int paged_copy_in(const struct userfaultfd *u, char *range, const char *from, size_t len, bool writable)
{
	size_t done;
	int err = userfaultfd_copy(u, range, from, len, !writable, &done);

	if (err)
		drop(range, done);
	return err;
}

/* All of it or nothing, where nothing can be stored meanwhile. */
static int copy_over(const struct userfaultfd *u, char *to, char *from, size_t len, bool protect)
{
	int err = paged_copy_in(u, to, from, len, !protect);

	if (!err)
		leave(from, len);
	return err;
}

/* No thread can be storing to what was never exposed: copies are removed from many places together, moves one at a
 * time. */
static int copy_back(const struct userfaultfd *u, char *range, char *pool, size_t len, bool writable)
{
	int err = writable ? userfaultfd_protect(u, range, len, true) : 0;

	if (!err)
		err = copy_over(u, pool, range, len, false);
	if (err && writable)
		userfaultfd_protect(u, range, len, false);
	return err;
}

/* If some of it has gone back already, it returns. */
static int move_back(const struct userfaultfd *u, char *range, char *pool, size_t len, bool writable)
{
	size_t moved;
	int err = userfaultfd_move(u, pool, range, len, &moved);

	if (err && moved)
		paged_map(u, range, pool, moved, writable);
	return err;
}

/* The pool may be full there though the frame is away: by mlockall(2), which fills all that may be stored to. */
int paged_unmap(const struct userfaultfd *u, char *range, char *pool, size_t len, bool writable, bool exposed)
{
	int (*back)(const struct userfaultfd *u, char *range, char *pool, size_t len, bool writable) = copy_back;
	int err;

	if (u->moves && exposed)
		back = move_back;
	err = back(u, range, pool, len, writable);
	if (err != -EEXIST)
		return err;
	drop(pool, len);
	return back(u, range, pool, len, writable);
}

int paged_unmap_last(char *range, char *pool, size_t len)
{
	(void)range;
	(void)pool;
	(void)len;
	return -EOPNOTSUPP;
}

/* What does not move is copied. If that fails, all goes back. */
static int map_writable(const struct userfaultfd *u, char *range, char *pool, size_t len)
{
	size_t moved = 0, copied = 0;
	int err = -EOPNOTSUPP;

	if (u->moves)
		err = userfaultfd_move(u, range, pool, len, &moved);
	if (err)
		err = userfaultfd_copy(u, range + moved, pool + moved, len - moved, false, &copied);
	drop(pool + moved, copied);
	if (err && moved + copied)
		paged_unmap(u, range, pool, moved + copied, true, true);
	return err;
}

int paged_map(const struct userfaultfd *u, char *range, char *pool, size_t len, bool writable)
{
	return writable ? map_writable(u, range, pool, len) : copy_over(u, range, pool, len, true);
}
