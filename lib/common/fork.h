/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handlers of fork(2) of a library, which calls pthread_atfork(3) here only. fork(2) copies
 * memory while other threads run, so data that a lock guards may be inconsistent in the child
 * unless the lock is held meanwhile.
 */
#ifndef COMMON_FORK_H
#define COMMON_FORK_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Places of handlers, in the order in which their locks are taken. Before fork(2), the handlers run
 * in this order; after it, in the reverse order. CONTRIBUTING.md says what each one does.
 */
enum fork_place {
	FORK_LIBRARY,            /* api/start.c */
	FORK_MAPPINGS,           /* paging/lookup.c */
	FORK_NODE,               /* node/node.c */
	FORK_IMPORTS,            /* peer/import.c */
	FORK_VARIABLES,          /* io/vars.c */
	FORK_RINGS,              /* drivers/uring.c */
	FORK_FILE_LOCKS,         /* drivers/file_lock.c */
	FORK_DESCRIPTORS,        /* drivers/file_open.c */
	FORK_PLACES
};

/*
 * Adds a handler, whose place must be free. `lock` is taken over fork(2); then `prepare` is called
 * in the parent, and `child` in the child, after the lock has been released. Each may be NULL. The
 * caller must not hold a lock of a place. Returns 0 or an error number.
 */
int fork_register(enum fork_place place, _Atomic uint32_t *lock, void (*prepare)(void),
		  void (*child)(void));

#endif
