/* SPDX-License-Identifier: BSD-3-Clause */
/* System calls that several files need: pages, clocks, threads, and a guard against signals. */
#ifndef SYS_H
#define SYS_H

#include "common/memory_calls.h"
#include "common/futex.h"
#include "common/minmax.h"

#include <errno.h>
#include <pthread.h>
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

/* Returns the page size of the kernel in bytes. */
size_t sys_page(void);
/* Returns the nanoseconds since a fixed moment. The clock never goes back. */
uint64_t sys_now_ns(void);

/* The same in milliseconds. */
static inline uint64_t sys_now(void)
{
	return sys_now_ns() / 1000000;
}

/*
 * These functions call mmap(2) for memory that is not locked, even if the process has locked all
 * future memory (mlockall(2)). Locked memory is populated as soon as it is accessible, cannot be
 * freed, and counts against RLIMIT_MEMLOCK. sys_map_inaccessible maps with PROT_NONE. Both return
 * MAP_FAILED with errno if they fail.
 */
void *sys_map_inaccessible(void *at, size_t len, int flags, int fd, int64_t off);
void *sys_map(size_t len, int prot, int flags, int fd, int64_t off);
void sys_unlock(void *p, size_t len);
/* Whether the process locked future memory at the time of the last check. */
extern _Atomic bool sys_memory_is_locked;
/* Checks again. true: memory of the library may have become locked. */
bool sys_check_memory_locks(void);
/* In a forked child: releases the lock of a thread that the child does not have. */
void sys_forget(void);
/* Discards the contents of private memory, locked or not. 0 or -errno. */
int sys_discard_pages(void *p, size_t len);

/*
 * Each thread remembers its first system call for memory that failed, because the caller may notice
 * the failure later, with another error. sys_note_failure: records the call, which becomes part of
 * a message, and errno; returns -errno. sys_first_failure: returns the first call that failed since
 * sys_forget_failure and sets *err to its -errno; or returns NULL and leaves *err.
 */
int sys_note_failure(const char *call);
const char *sys_first_failure(int *err);
void sys_forget_failure(void);

/* The end of a message about a thread that cannot be started. */
#define SYS_THREAD_LIMITS ". Try larger limits: RLIMIT_AS (ulimit -v), RLIMIT_NPROC (ulimit -u), " \
			  "pids.max of the cgroup"

/* Reserves address space without memory or access rights. align: a power of two. NULL: no address
 * space is left. */
void *sys_reserve(size_t len, size_t align);
/* Reserves address space where the kernel maps nothing by itself. NULL: no room there. */
void *sys_reserve_apart(size_t len, size_t align);
/* Whether the address is in the area of sys_reserve_apart. */
bool sys_is_apart(const void *p);
/* Maps anonymous zeros, which take no memory until they are accessed; or returns NULL. */
void *sys_map_anonymous(size_t len);

/* Creates a file without a name and without memory, which other processes can map and which never
 * becomes shorter. Returns a descriptor, or -errno. */
int sys_create_memfd(const char *name, uint64_t size);
/* Returns whether this kernel moves mappings of a file as it moves private memory. */
bool sys_can_move_shared(int fd);
/* Moves a descriptor above those that a program may choose itself (with dup2(2)). Returns the new
 * descriptor, or the same one if that fails. Passes on -1, with errno. */
int sys_move_fd(int fd);

/*
 * While a thread holds locks of the library, no signal handler of the application may run on it,
 * because the handler could fault on a segment that the thread has locked, and the thread must not
 * be cancelled. Signals that end or stop the process stay open.
 */
struct guard {
	uint64_t mask;  /* signal mask before, in the kernel's format */
	int cancel;     /* cancellation state before */
	int err;        /* errno before */
};

/* Restores the cancellation state. The thread may end in this call. */
static inline void cancel_restore(int state)
{
	int type, unused;

	/* In pthread_setcancelstate, glibc would end a thread of asynchronous type without the
	 * return value PTHREAD_CANCELED. pthread_setcanceltype sets that value. */
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	pthread_setcancelstate(state, &unused);
	if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
		pthread_setcanceltype(type, &unused);
}
/* Returns the signals to block, in the kernel's format: all except those that a thread's own
 * instructions raise, and those that end or stop the process. glibc's signal that cancels threads
 * is blocked: otherwise, asynchronous cancellation could happen while it is disabled. */
uint64_t guard_mask(void);
/* Records whether a signal's action ends or stops the process. Returns whether this changed. */
bool guard_note_action(int sig, bool ends);
void guard_enter(struct guard *g);
/* Restores errno, too. */
void guard_leave(struct guard *g);

/* Starts a detached thread of the library, in which only the signals that its own instructions
 * raise are open. 0 or -errno. */
int sys_start_thread(void *(*run)(void *arg), void *arg);

#endif
