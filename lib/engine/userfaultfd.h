/* SPDX-License-Identifier: BSD-3-Clause */
/* userfaultfd(2), as far as this kernel has it and this process may use it: one descriptor for the process. */
#ifndef USERFAULTFD_H
#define USERFAULTFD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* Opens the descriptor unless it is open. 0, or -errno with a sentence. */
int userfaultfd_open(void);
/* In a forked child: its memory is not registered, and the descriptor is its parent's. */
void userfaultfd_forget(void);
/* Whether accesses of system calls and of other processes are reported, too; else those of threads only. */
bool userfaultfd_sees_kernel(void);
/* Whether pages can move without a copy; only then does the kernel say which of them it works on. */
bool userfaultfd_moves(void);

/* The next access to registered memory that cannot go on; waits for it if `wait`. false: none just now. */
bool userfaultfd_next(void **addr, bool *write, bool wait);

/*
 * Private anonymous memory, whole pages, whose pages can be copied, moved to and protected from then on; accesses to
 * absent ones are reported if `absent`. 0 or -errno.
 */
int userfaultfd_register(void *p, size_t len, bool absent);

/*
 * These give 0, or -errno. *done: bytes from the begin on that were dealt with, all of them after a success.
 * Whoever waits for an access to these goes on.
 */

/* Copies to pages that are absent; each appears whole, and protected if `protect`: a store is reported. */
int userfaultfd_copy(void *to, const void *from, size_t len, bool protect, size_t *done);
/* Moves pages to where they are absent, and where they can be stored to then. -EBUSY: somebody has pinned one. */
int userfaultfd_move(void *to, void *from, size_t len, size_t *done);
/* Places that are to become absent together: each time that the kernel takes a page away it interrupts the processors,
 * which takes longer than all the rest of a small place. Until then they are memory that no budget counts. */
#define USERFAULTFD_DROPS 16
#define USERFAULTFD_DROP_BYTES ((size_t)512 << 10)
struct userfaultfd_drops {
	struct iovec places[USERFAULTFD_DROPS];
	unsigned n;
	size_t len; /* of all places */
};

/* Notes one; when there is no room for more, or they are too much memory, all of them become absent. */
void userfaultfd_drop_later(struct userfaultfd_drops *drops, void *p, size_t len);
void userfaultfd_drop_all(struct userfaultfd_drops *drops);
/* Protects pages, or lets them be stored to. */
int userfaultfd_protect(void *p, size_t len, bool protect);
/* Whoever waits for an access to these tries it again. */
void userfaultfd_wake(void *p, size_t len);

#endif
