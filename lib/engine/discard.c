/* SPDX-License-Identifier: BSD-3-Clause */
/* Discards places together by process_madvise(2), where the kernel can. Takes no lock. */
#include "engine/discard.h"

#include "base/sys.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_process_madvise /* Linux 5.10 */
#define SYS_process_madvise 440
#endif

static _Atomic int own_pidfd = -1; /* -1: places are discarded one by one */

/* The batch of the thread. */
static _Thread_local struct {
	bool open;
	size_t copied;      /* bytes of copies that are left */
	size_t most_copied; /* bound on `copied` */
	struct discard_list list;
} batch __attribute__((tls_model("initial-exec")));

void discard_start(void)
{
	int none = -1, fd = own_pidfd < 0 ?
			    sys_move_fd((int)syscall(SYS_pidfd_open, getpid(), 0)) : -1;

	if (fd >= 0 && !atomic_compare_exchange_strong(&own_pidfd, &none, fd))
		close(fd);
}

void discard_forget(void)
{
	int fd = atomic_exchange(&own_pidfd, -1);

	if (fd >= 0)
		close(fd);
}

/* Linux 6.13 takes this advice of a process for itself, and 6.16 takes it for all places at
 * once. */
void discard_all(struct discard_list *list)
{
	if (list->n < 2 || syscall(SYS_process_madvise, own_pidfd, list->places, list->n,
				   MADV_DONTNEED, 0) != (long)list->len) {
		for (unsigned k = 0; k < list->n; k++)
			sys_discard_pages(list->places[k].iov_base, list->places[k].iov_len);
	}
	list->n = 0;
	list->len = 0;
}

void discard_later(struct discard_list *list, void *p, size_t len)
{
	struct iovec *last = list->n ? &list->places[list->n - 1] : NULL;

	if (last && (char *)last->iov_base + last->iov_len == (char *)p)
		last->iov_len += len;
	else
		list->places[list->n++] = (struct iovec){ p, len };
	list->len += len;
	if (list->n == DISCARD_MAX_PLACES || list->len >= DISCARD_MAX_BYTES)
		discard_all(list);
}

void discard_batch_begin(size_t most)
{
	batch.open = true;
	batch.most_copied = most;
}

void discard_batch_end(void)
{
	discard_all(&batch.list);
	batch.copied = 0;
	batch.open = false;
}

int discard_place(char *at, size_t len)
{
	if (!batch.open)
		return sys_discard_pages(at, len);
	discard_later(&batch.list, at, len);
	return 0;
}

void discard_copy(char *at, size_t len)
{
	discard_place(at, len);
	if (batch.open && (batch.copied += len) >= batch.most_copied) {
		discard_all(&batch.list);
		batch.copied = 0;
	}
}
