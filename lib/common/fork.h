/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handlers of fork(2) in a fixed order, for one call of pthread_atfork(3) in each library. fork(2)
 * copies memory while other threads run, so data that a lock protects may be inconsistent in the
 * child unless the lock is held during fork(2).
 */
#ifndef COMMON_FORK_H
#define COMMON_FORK_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Places of handlers, in the order in which their locks are taken. Before fork(2), the handlers run
 * in this order; after fork(2), in the reverse order. CONTRIBUTING.md describes each handler.
 */
enum fork_place {
	FORK_LIBRARY,            /* api/start.c */
	FORK_MAPPINGS,           /* paging/mapping/lookup.c */
	FORK_NODE,               /* node/node.c */
	FORK_IMPORTS,            /* peer/import.c */
	FORK_VARIABLES,          /* io/vars.c */
	FORK_RINGS,              /* drivers/uring.c */
	FORK_HTTP,               /* drivers/http/loop.c */
	FORK_FILE_LOCKS,         /* drivers/file_lock.c */
	FORK_DESCRIPTORS,        /* drivers/file_open.c */
	FORK_PLACES
};

/*
 * Adds a handler, whose place must be free. Before fork(2), the parent takes `lock` and then calls
 * `prepare`. After fork(2), the parent releases `lock`; the child releases its copy of `lock` and
 * then calls `child`. Each of the three may be NULL. The caller must not hold a lock of any place.
 * Returns 0 or an error number.
 */
int fork_register(enum fork_place place, _Atomic uint32_t *lock, void (*prepare)(void),
		  void (*child)(void));

#endif
