/* SPDX-License-Identifier: BSD-3-Clause */
/* System calls that several files need: pages, clocks, threads, and a guard against signals. */
#ifndef SYS_H
#define SYS_H

#include "common/memory_calls.h"
#include "common/futex.h"
#include "common/minmax.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE ((size_t)2 << 20)

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

static inline size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) & ~(to - 1);
}

size_t sys_page(void);
/* Milliseconds since some fixed moment; never goes back. */
uint64_t sys_now(void);

/*
 * Memory that is not locked, also where the process has locked all future memory (mlockall(2)): such a lock populates
 * memory as soon as it gets rights, prevents freeing it, and counts all of it against the limit. Like mmap(2); sys_bare
 * makes memory without rights, sys_map with them. MAP_FAILED with errno.
 */
void *sys_bare(void *at, size_t len, int flags, int fd, int64_t off);
void *sys_map(size_t len, int prot, int flags, int fd, int64_t off);
void sys_unlock(void *p, size_t len);
/* Whether the process locked future memory when this was last checked. */
extern _Atomic bool sys_locks;
/* Checks again. true: existing memory may be locked now. */
bool sys_look_for_locks(void);
/* In a forked child: nobody looks. */
void sys_forget(void);
/* Discards the contents of private memory, locked or not; 0 or -errno. */
int sys_drop(void *p, size_t len);

/*
 * Which of the calls that prepare and move memory was the first to fail in this thread, because what comes of it may only
 * fail later, and by another error. sys_failed: errno is that of such a call, which is part of a sentence; returns -errno.
 * sys_failure: the first one since sys_forget_failure, and its -errno in *err; or NULL, and *err stays.
 */
int sys_failed(const char *call);
const char *sys_failure(int *err);
void sys_forget_failure(void);

/* The end of a sentence about a thread that cannot be started. */
#define SYS_THREAD_LIMITS ". Try larger limits: RLIMIT_AS (ulimit -v), RLIMIT_NPROC (ulimit -u), " \
			  "pids.max of the cgroup"

/* Address space without memory or rights, aligned to align (a power of two). NULL: none left. */
void *sys_reserve(size_t len, size_t align);
/* The same in a part of the address space where the kernel maps nothing by itself; NULL: no room there. */
void *sys_reserve_apart(size_t len, size_t align);
bool sys_is_apart(const void *p);
/* Anonymous memory that costs nothing until it is touched; or NULL. */
void *sys_lazy(size_t len);

/* A file of so many bytes, which has no name and no memory yet, for other processes to map: a descriptor, or -errno.
 * It never gets shorter. */
int sys_object(const char *name, uint64_t size);
/* The descriptor, out of the way of those that a program chooses itself, by dup2(2) say; an error stays one, with its errno. */
int sys_fd_away(int fd);

/*
 * While a thread holds locks of the library, no signal handler of the application may run on it (it could fault on a
 * segment that the same thread has locked) and it may not be cancelled. Signals that end or stop the process are open.
 */
struct guard {
	uint64_t mask;  /* in the kernel's format */
	int cancel;
	int err;
};

/* Makes the thread cancellable again, if `state` says so; it may end here. */
void cancel_restore(int state);
/* The signals to block, in the kernel's format: all but those that a thread's own instructions raise, and those that
 * end or stop the process. glibc's signal for cancelling threads is among them: if it were open, asynchronous
 * cancellation could happen where it is disabled. */
uint64_t guard_mask(void);
/* Records whether the signal's action is to end or to stop the process. Returns whether that has changed. */
bool guard_let(int sig, bool ends);
void guard_enter(struct guard *g);
/* Also restores errno. */
void guard_leave(struct guard *g);

/* Starts a detached thread of the library, in which all signals are blocked but those
 * that its own instructions raise. 0 or -errno. */
int sys_thread(void *(*run)(void *arg), void *arg);

#endif
