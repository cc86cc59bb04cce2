/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages move from the pool to the mapped range without a copy. Moved pages are writable at once, so pages that must not
 * be written are copied instead: a copy can be mapped write-protected. Either way its place in the pool is empty then,
 * and the frame's memory is mapped. A page that the kernel has pinned for a transfer, and to which it will store
 * regardless of any protection, does not move: its segment stays mapped. A segment needs no VMA of its own. Takes no
 * lock; callers hold the segment's.
 *
 * Before Linux 6.8 pages cannot move, and only the engine sigbus is used there. Its pages are copied in both directions:
 * a place is protected against stores before it is copied, and discarded afterwards. A thread that stores in between
 * faults. The kernel, which may store to a page that it holds, is not noticed; but such a range is pinned by umpin(3),
 * and segments with pins are not unmapped.
 */
#include "engine/paged.h"

#include "base/sys.h"

#include <sys/mman.h>

static _Thread_local bool batching __attribute__((tls_model("initial-exec")));
static _Thread_local size_t left __attribute__((tls_model("initial-exec")));
static _Thread_local size_t left_most __attribute__((tls_model("initial-exec")));
static _Thread_local struct userfaultfd_drops drops __attribute__((tls_model("initial-exec")));

/* In this order: the system fills what is locked as soon as it gets rights, but not where it is watched. */
int paged_adopt(const struct engine *e, char *range, size_t len)
{
	int err;

	/* The system must not put pages there by itself, huge ones in place of some. */
	raw_madvise(range, len, MADV_NOHUGEPAGE);
	if (raw_madvise(range, len, MADV_DONTFORK) < 0)
		return sys_failed("madvise(2) with MADV_DONTFORK");
	err = userfaultfd_register(e->uffd, range, len, true);
	if (err)
		return err;
	return mprotect(range, len, e->loads_only ? PROT_READ : PROT_READ | PROT_WRITE) < 0 ? sys_failed("mprotect(2)") : 0;
}

int paged_adopt_pool(const struct engine *e, char *pool, size_t len)
{
	return userfaultfd_register(e->uffd, pool, len, false);
}

bool paged_is_one(char *at, size_t len)
{
	(void)at;
	(void)len;
	return true;
}

int paged_protect(const struct engine *e, char *range, size_t len, bool writable)
{
	return userfaultfd_protect(e->uffd, range, len, !writable);
}

static void drop(char *at, size_t len)
{
	if (len)
		sys_drop(at, len);
}

void engine_batch_begin(size_t most)
{
	batching = true;
	left_most = most;
}

static void drop_all(void)
{
	userfaultfd_drop_all(&drops);
	left = 0;
}

void engine_batch_end(void)
{
	drop_all();
	batching = false;
}

/* The copy that a frame leaves behind. */
static void leave(char *at, size_t len)
{
	if (!batching) {
		drop(at, len);
		return;
	}
	userfaultfd_drop_later(&drops, at, len);
	left += len;
	if (left >= left_most)
		drop_all();
}

int paged_discard(char *range, size_t len)
{
	if (!batching)
		return sys_drop(range, len);
	userfaultfd_drop_later(&drops, range, len);
	return 0;
}

int paged_copy_in(const struct engine *e, char *range, const char *from, size_t len, bool writable)
{
	size_t done;
	int err = userfaultfd_copy(e->uffd, range, from, len, !writable, &done);

	if (err)
		drop(range, done);
	return err;
}

/* All of it or nothing, where nothing can be stored meanwhile. */
static int copy_over(const struct engine *e, char *to, char *from, size_t len, bool protect)
{
	int err = paged_copy_in(e, to, from, len, !protect);

	if (!err)
		leave(from, len);
	return err;
}

/* No thread can be storing to what was never exposed: copies are removed from many places together, moves one at a
 * time. */
static int copy_back(const struct engine *e, char *range, char *pool, size_t len, bool writable)
{
	int err = writable ? userfaultfd_protect(e->uffd, range, len, true) : 0;

	if (!err)
		err = copy_over(e, pool, range, len, false);
	if (err && writable)
		userfaultfd_protect(e->uffd, range, len, false);
	return err;
}

/* If some of it has gone back already, it returns. */
static int move_back(const struct engine *e, char *range, char *pool, size_t len, bool writable)
{
	size_t moved;
	int err = userfaultfd_move(e->uffd, pool, range, len, &moved);

	if (err && moved)
		paged_map(e, range, pool, moved, writable, writable);
	return err;
}

/* The pool may be full there though the frame is away: by mlockall(2), which fills all that may be stored to. */
int paged_unmap(const struct engine *e, char *range, char *pool, size_t len, bool writable, bool exposed)
{
	int (*back)(const struct engine *e, char *range, char *pool, size_t len, bool writable) = copy_back;
	int err;

	if (e->uffd->moves && exposed && !e->loads_only)
		back = move_back;
	err = back(e, range, pool, len, writable);
	if (err != -EEXIST)
		return err;
	drop(pool, len);
	return back(e, range, pool, len, writable);
}

int paged_unmap_last(char *range, char *pool, size_t len)
{
	(void)range;
	(void)pool;
	(void)len;
	return -EOPNOTSUPP;
}

/* Pages that do not move are copied: the kernel never holds a page of the pool to store to it later. If a copy fails, all
 * of the frame goes back. */
static int map_writable(const struct engine *e, char *range, char *pool, size_t len)
{
	size_t moved = 0, copied = 0;
	int err = -EOPNOTSUPP;

	if (e->uffd->moves)
		err = userfaultfd_move(e->uffd, range, pool, len, &moved);
	if (err)
		err = userfaultfd_copy(e->uffd, range + moved, pool + moved, len - moved, false, &copied);
	drop(pool + moved, copied);
	if (err && moved + copied)
		paged_unmap(e, range, pool, moved + copied, true, true);
	return err;
}

int paged_map(const struct engine *e, char *range, char *pool, size_t len, bool was_writable, bool writable)
{
	(void)was_writable;
	return writable && !e->loads_only ? map_writable(e, range, pool, len) : copy_over(e, range, pool, len, true);
}
