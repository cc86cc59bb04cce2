/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes cannot map the memory of the engine uffd: its pages are private, so that the
 * library detects the kernel's accesses. But the kernel copies to and from it
 * (process_vm_readv(2)), and the library serves that like any other access: absent segments are
 * loaded, clean ones become dirty, and those being copied stay. Takes no lock.
 */
#include "rma/remote.h"

#include "common/random.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

/* Identifies this process; 0: not made yet. */
static _Atomic uint64_t mark;

void remote_make(struct remote_offer *offer, const void *at)
{
	uint64_t none = 0;

	if (mark == 0)
		atomic_compare_exchange_strong(&mark, &none, random_id());
	*offer = (struct remote_offer){ (uintptr_t)at, (uintptr_t)&mark, mark, getpid() };
}

bool remote_find(const struct remote_offer *offer)
{
	uint64_t found = 0;
	struct remote_list l;

	remote_begin(&l, offer->pid);
	return remote_copy(&l, false, &found, offer->mark_at, sizeof(found)) && remote_end(&l) &&
	       found == offer->mark;
}

/* Adds a piece, or continues the last one. The list has room. */
static void add_piece(struct iovec *list, unsigned *n, uint64_t at, size_t len)
{
	struct iovec *last = *n ? &list[*n - 1] : NULL;

	if (last && (uintptr_t)last->iov_base + last->iov_len == at)
		last->iov_len += len;
	else
		list[(*n)++] = (struct iovec){ (void *)(uintptr_t)at, len };
}

bool remote_copy(struct remote_list *l, bool put, void *here, uint64_t there, size_t len)
{
	if ((l->here_n == REMOTE_PIECES || l->there_n == REMOTE_PIECES || l->put != put) &&
	    !remote_end(l))
		return false;
	l->put = put;
	l->bytes += len;
	add_piece(l->here, &l->here_n, (uintptr_t)here, len);
	add_piece(l->there, &l->there_n, there, len);
	return true;
}

bool remote_end(struct remote_list *l)
{
	ssize_t n = 0;
	bool good;

	if (l->bytes && l->put)
		n = process_vm_writev(l->pid, l->here, l->here_n, l->there, l->there_n, 0);
	else if (l->bytes)
		n = process_vm_readv(l->pid, l->here, l->here_n, l->there, l->there_n, 0);
	good = n >= 0 && (size_t)n == l->bytes;
	if (!good && (n >= 0 || errno == EFAULT))
		errno = EIO;
	else if (!good && errno == ESRCH)
		errno = EOWNERDEAD;
	remote_begin(l, l->pid);
	return good;
}
