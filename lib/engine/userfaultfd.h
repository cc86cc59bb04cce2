/* SPDX-License-Identifier: BSD-3-Clause */
/* userfaultfd(2), as far as the kernel supports it and the process may use it. The process has two
 * descriptors, each with its own way of reporting accesses. Memory belongs to the descriptor with
 * which it was registered. */
#ifndef USERFAULTFD_H
#define USERFAULTFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct userfaultfd {
	const bool by_signal;      /* how an access is reported: by SIGBUS in the accessing thread;
				      else that thread waits, and a message is sent */
	_Atomic uint32_t starting; /* lock of userfaultfd_open */
	_Atomic bool started;      /* whether userfaultfd_open has succeeded */
	_Atomic int fd;            /* descriptor; -1: not open */
	bool sees_kernel;          /* whether accesses of system calls and of other processes are
				      reported, and not only those of threads */
	bool moves;                /* whether pages can move without a copy (UFFDIO_MOVE); always
				      true of userfaultfd_messages */
};

extern struct userfaultfd userfaultfd_messages, userfaultfd_signals;

/* Opens the descriptor and then calls `then`, once. Returns 0, or -errno with a sentence, after
 * which the next call tries again. */
int userfaultfd_open(struct userfaultfd *u, int (*then)(void));
/* In a forked child: its memory is not registered, and the descriptor belongs to its parent. */
void userfaultfd_forget(struct userfaultfd *u);

/* Takes the next access to memory of userfaultfd_messages that waits to be served; waits for one if
 * `wait`. Returns false if there is none at the moment. */
bool userfaultfd_next(void **addr, bool *write, bool wait);

/* Registers private anonymous memory, in whole pages: its pages can then be copied to, moved to and
 * protected. If `absent`, accesses to absent pages are reported. Returns 0 or -errno. */
int userfaultfd_register(const struct userfaultfd *u, void *p, size_t len, bool absent);

/* Registers a shared mapping of an object in memory: accesses to pages that the object lacks are
 * reported. Returns 0 or -errno. */
int userfaultfd_register_object(const struct userfaultfd *u, void *p, size_t len);

/*
 * These return 0 or -errno. *done: bytes from the beginning that were processed, all of them after
 * a success. Threads that wait for an access to these bytes continue.
 */

/* Copies to absent pages. Each page appears as a whole, and protected if `protect`: a store is
 * reported. */
int userfaultfd_copy(const struct userfaultfd *u, void *to, const void *from, size_t len,
		     bool protect, size_t *done);
/* Moves pages to absent places, which can be stored to then. -EBUSY: a page is pinned. */
int userfaultfd_move(const struct userfaultfd *u, void *to, void *from, size_t len, size_t *done);
/* Protects pages against stores, or allows stores. */
int userfaultfd_protect(const struct userfaultfd *u, void *p, size_t len, bool protect);
/* Makes threads that wait for an access to these bytes repeat it. */
void userfaultfd_wake(const struct userfaultfd *u, void *p, size_t len);

#endif
