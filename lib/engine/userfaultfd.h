/* SPDX-License-Identifier: BSD-3-Clause */
/* userfaultfd(2), as far as the kernel supports it and the process may use it: one descriptor for the process. */
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
/* Whether pages can move without a copy; only then does the kernel report which of them it has pinned. */
bool userfaultfd_moves(void);

/* The next access to registered memory that waits to be served; waits for one if `wait`. false: none at the moment. */
bool userfaultfd_next(void **addr, bool *write, bool wait);

/*
 * Registers private anonymous memory, whole pages: its pages can be copied to, moved to and protected from then on;
 * accesses to absent ones are reported if `absent`. 0 or -errno.
 */
int userfaultfd_register(void *p, size_t len, bool absent);

/*
 * These return 0, or -errno. *done: bytes from the beginning that were processed, all of them after a success.
 * Threads that wait for an access to these go on.
 */

/* Copies to pages that are absent; each appears whole, and protected if `protect`: a store is reported. */
int userfaultfd_copy(void *to, const void *from, size_t len, bool protect, size_t *done);
/* Moves pages to absent places, which can be stored to then. -EBUSY: a page is pinned. */
int userfaultfd_move(void *to, void *from, size_t len, size_t *done);
/* Places that become absent together: each time that the kernel removes pages it interrupts the other processors, which
 * takes longer than all the rest for a small place. Until then their memory is in no budget. */
#define USERFAULTFD_DROPS 16
#define USERFAULTFD_DROP_BYTES ((size_t)512 << 10)
struct userfaultfd_drops {
	struct iovec places[USERFAULTFD_DROPS];
	unsigned n;
	size_t len; /* of all places */
};

/* Adds a place; when the list is full, or has too much memory, all of its places become absent. */
void userfaultfd_drop_later(struct userfaultfd_drops *drops, void *p, size_t len);
void userfaultfd_drop_all(struct userfaultfd_drops *drops);
/* Protects pages against stores, or allows stores. */
int userfaultfd_protect(void *p, size_t len, bool protect);
/* Threads that wait for an access to these try it again. */
void userfaultfd_wake(void *p, size_t len);

#endif
