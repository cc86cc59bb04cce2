/* SPDX-License-Identifier: BSD-3-Clause */
/* userfaultfd(2), as far as the kernel supports it and the process may use it: two descriptors for the process, each with
 * its own way of reporting accesses. Memory belongs to the one that it was registered with. */
#ifndef USERFAULTFD_H
#define USERFAULTFD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

struct userfaultfd {
	const bool by_signal; /* the accessing thread gets SIGBUS; else it waits for a thread that reads a message */
	_Atomic int fd;       /* -1: not open */
	bool sees_kernel;     /* accesses of system calls and of other processes are reported, too; else those of threads only */
	bool moves;           /* pages can move without a copy (UFFDIO_MOVE); always true of userfaultfd_messages */
};

extern struct userfaultfd userfaultfd_messages, userfaultfd_signals;

/* Opens it unless it is open. 0, or -errno with a sentence. For one thread at a time. */
int userfaultfd_open(struct userfaultfd *u);
/* In a forked child: its memory is not registered, and the descriptor is its parent's. */
void userfaultfd_forget(struct userfaultfd *u);

/* The next access to memory of userfaultfd_messages that waits to be served; waits for one if `wait`. false: none at the
 * moment. */
bool userfaultfd_next(void **addr, bool *write, bool wait);

/*
 * Registers private anonymous memory, whole pages: its pages can be copied to, moved to and protected from then on;
 * accesses to absent ones are reported if `absent`. 0 or -errno.
 */
int userfaultfd_register(const struct userfaultfd *u, void *p, size_t len, bool absent);

/*
 * These return 0, or -errno. *done: bytes from the beginning that were processed, all of them after a success.
 * Threads that wait for an access to these go on.
 */

/* Copies to pages that are absent; each appears whole, and protected if `protect`: a store is reported. */
int userfaultfd_copy(const struct userfaultfd *u, void *to, const void *from, size_t len, bool protect, size_t *done);
/* Moves pages to absent places, which can be stored to then. -EBUSY: a page is pinned. */
int userfaultfd_move(const struct userfaultfd *u, void *to, void *from, size_t len, size_t *done);
/* Places that become absent together: each time that the kernel removes pages it interrupts the other processors, which
 * takes longer than all the rest for a small place. */
#define USERFAULTFD_DROPS 32
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
int userfaultfd_protect(const struct userfaultfd *u, void *p, size_t len, bool protect);
/* Threads that wait for an access to these try it again. */
void userfaultfd_wake(const struct userfaultfd *u, void *p, size_t len);

#endif
