/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages move from the pool to the mapped range without a copy. Moved pages are writable at once, so
 * pages that must not be written are copied instead: a copy can be mapped write-protected. In both
 * cases the frame's place in the pool is empty then, and its memory is in the mapped range. A page
 * that the kernel has pinned for a transfer, and to which it will store regardless of any
 * protection, does not move: its segment stays mapped. A segment needs no VMA of its own. Takes no
 * lock; callers hold the segment's.
 *
 * Before Linux 6.8, pages cannot move, and only the engine sigbus is used. Its pages are copied in
 * both directions: a place is protected against stores before it is copied, and discarded
 * afterwards. A thread that stores in between faults. The library does not notice stores of the
 * kernel to a page that it holds; but such a range is pinned by umpin(3), and segments with pins
 * are not unmapped.
 */
#include "engine/paged.h"

#include "base/sys.h"

#include <string.h>
#include <sys/mman.h>

/* Registers the range before it gets rights, because the kernel fills locked memory as soon as it
 * gets rights, but not where faults are reported. */
int paged_prepare(const struct engine *e, char *range, size_t len, bool writable)
{
	int err;

	/* The kernel must not map pages there by itself, such as a huge page in place of some. */
	raw_madvise(range, len, MADV_NOHUGEPAGE);
	if (raw_madvise(range, len, MADV_DONTFORK) < 0)
		return sys_note_failure("madvise(2) with MADV_DONTFORK");
	err = userfaultfd_register(e->data, range, len, true);
	if (err)
		return err;
	return mprotect(range, len, writable ? PROT_READ | PROT_WRITE : PROT_READ) < 0 ?
		       sys_note_failure("mprotect(2)") : 0;
}

int paged_protect(const struct engine *e, char *range, size_t len, bool writable)
{
	return userfaultfd_protect(e->data, range, len, !writable);
}

int paged_copy_in(const struct engine *e, char *range, const char *from, size_t len, bool writable)
{
	size_t done;
	int err = userfaultfd_copy(e->data, range, from, len, !writable, &done);

	if (err && done)
		sys_discard_pages(range, done);
	return err;
}

bool paged_moves(const struct engine *e)
{
	return ((const struct userfaultfd *)e->data)->moves;
}

/* The kernel only moves memory between places that may be stored to. writable: whether the program
 * may store to the range. */
static int move_unprotected(const struct engine *e, char *range, char *to, char *from, size_t len,
			    bool writable, size_t *moved)
{
	const struct userfaultfd *u = e->data;
	int err;

	*moved = 0;
	if (!u->moves)
		return -EOPNOTSUPP;
	if (!writable && mprotect(range, len, PROT_READ | PROT_WRITE) < 0)
		return sys_note_failure("mprotect(2)");
	err = userfaultfd_move(u, to, from, len, moved);
	if (!writable && mprotect(range, len, PROT_READ) < 0 && !err)
		err = sys_note_failure("mprotect(2)");
	return err;
}

/* If the empty range has a page table, because it had small pages or a fault, the kernel splits the
 * huge page. Since Linux 6.14, it frees the page table of a range that is discarded as a whole. */
int paged_move_in(const struct engine *e, char *range, char *from, size_t len, bool writable)
{
	size_t moved;
	int err = sys_discard_pages(range, len);

	if (err)
		return err;
	err = move_unprotected(e, range, range, from, len, writable, &moved);
	/* The program may have stored to what has moved. */
	if (err && moved && writable)
		err = paged_copy_in(e, range + moved, from + moved, len - moved, true);
	else if (err && moved) {
		memcpy(from, range, moved);
		sys_discard_pages(range, moved);
	}
	return err;
}

int paged_move_out(const struct engine *e, char *range, char *to, size_t len, bool writable)
{
	size_t moved;

	return move_unprotected(e, range, to, range, len, writable, &moved);
}

/* Moves all of the memory or none of it, where no thread can store in the meantime. */
static int move_by_copy(const struct engine *e, char *to, char *from, size_t len, bool protect)
{
	int err = paged_copy_in(e, to, from, len, !protect);

	if (!err)
		discard_copy(from, len);
	return err;
}

/* No thread can be storing to pages that were never exposed. The copies that many such pages leave
 * are discarded together, whereas pages move one by one. */
static int unmap_by_copy(const struct engine *e, char *range, char *pool, size_t len, bool writable)
{
	int err = writable ? userfaultfd_protect(e->data, range, len, true) : 0;

	if (!err)
		err = move_by_copy(e, pool, range, len, false);
	if (err && writable)
		userfaultfd_protect(e->data, range, len, false);
	return err;
}

/* If a part of the frame has moved when an error occurs, that part returns. */
static int unmap_by_move(const struct engine *e, char *range, char *pool, size_t len, bool writable)
{
	size_t moved;
	int err = userfaultfd_move(e->data, pool, range, len, &moved);

	if (err && moved)
		paged_map(e, range, pool, moved, writable, writable);
	return err;
}

/* The pool may have pages at the frame's place although the frame is mapped, because mlockall(2)
 * fills all memory that may be stored to. */
int paged_unmap(const struct engine *e, char *range, char *pool, size_t len, bool writable,
		bool exposed)
{
	const struct userfaultfd *u = e->data;
	int (*unmap)(const struct engine *e, char *range, char *pool, size_t len, bool writable) =
		u->moves && exposed ? unmap_by_move : unmap_by_copy;
	int err = unmap(e, range, pool, len, writable);

	if (err != -EEXIST)
		return err;
	sys_discard_pages(pool, len);
	return unmap(e, range, pool, len, writable);
}

/* Pages that do not move are copied, because the kernel never holds a page of the pool to store to
 * it later. If a copy fails, all of the frame goes back. */
static int map_writable(const struct engine *e, char *range, char *pool, size_t len)
{
	const struct userfaultfd *u = e->data;
	size_t moved = 0, copied = 0;
	int err = -EOPNOTSUPP;

	if (u->moves)
		err = userfaultfd_move(u, range, pool, len, &moved);
	if (err)
		err = userfaultfd_copy(u, range + moved, pool + moved, len - moved, false, &copied);
	if (copied)
		sys_discard_pages(pool + moved, copied);
	if (err && moved + copied)
		paged_unmap(e, range, pool, moved + copied, true, true);
	return err;
}

int paged_map(const struct engine *e, char *range, char *pool, size_t len, bool was_writable,
	      bool writable)
{
	(void)was_writable;
	return writable ? map_writable(e, range, pool, len) :
			  move_by_copy(e, range, pool, len, true);
}
