/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the engine uffd cannot be mapped by two processes: its pages are private, so that the library notices when the
 * kernel works on one. But the kernel itself can copy to and from it (process_vm_readv(2)): for the library that is an
 * access like any other. What is absent is paged in, what is clean becomes dirty, and what is being copied stays. Takes no
 * lock.
 */
#include "rma/remote.h"

#include "common/random.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

/* 0: not made yet. */
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
	struct remote r;

	remote_begin(&r, offer->pid, false);
	return remote_copy(&r, &found, offer->mark_at, sizeof(found)) && remote_end(&r) && found == offer->mark;
}

/* In a list of pieces, where it may continue the last one. false: there is no room. */
static bool add(struct iovec *list, unsigned *n, uint64_t at, size_t len)
{
	struct iovec *last = *n ? &list[*n - 1] : NULL;

	if (last && (uintptr_t)last->iov_base + last->iov_len == at) {
		last->iov_len += len;
		return true;
	}
	if (*n == REMOTE_PIECES)
		return false;
	list[(*n)++] = (struct iovec){ (void *)(uintptr_t)at, len };
	return true;
}

bool remote_copy(struct remote *r, void *here, uint64_t there, size_t len)
{
	if (r->here_n == REMOTE_PIECES || r->there_n == REMOTE_PIECES) {
		if (!remote_end(r))
			return false;
	}
	r->bytes += len;
	return add(r->here, &r->here_n, (uintptr_t)here, len) && add(r->there, &r->there_n, there, len);
}

bool remote_end(struct remote *r)
{
	ssize_t (*copy)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long, unsigned long) =
		r->put ? process_vm_writev : process_vm_readv;
	ssize_t n = r->bytes ? copy(r->pid, r->here, r->here_n, r->there, r->there_n, 0) : 0;
	bool good = n >= 0 && (size_t)n == r->bytes;

	if (!good && (n >= 0 || errno == EFAULT))
		errno = EIO;
	else if (!good && errno == ESRCH)
		errno = EOWNERDEAD;
	remote_begin(r, r->pid, r->put);
	return good;
}
