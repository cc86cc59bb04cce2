/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of fork handlers. Lock: `lock`, which is taken before all locks of handlers and held
 * over fork(2): a handler that is added meanwhile would release a lock that it has not taken.
 */
#include "common/fork.h"

#include "common/futex.h"

#include <pthread.h>

static struct {
	_Atomic uint32_t *lock;
	void (*prepare)(void);
	void (*child)(void);
} handlers[FORK_PLACES];
static _Atomic uint32_t lock;

static void run_before_fork(void)
{
	futex_lock(&lock);
	for (int i = 0; i < FORK_PLACES; i++) {
		if (handlers[i].lock)
			futex_lock(handlers[i].lock);
		if (handlers[i].prepare)
			handlers[i].prepare();
	}
}

static void unlock_in_parent(void)
{
	for (int i = FORK_PLACES; i-- > 0;) {
		if (handlers[i].lock)
			futex_unlock(handlers[i].lock);
	}
	futex_unlock(&lock);
}

/* The child has one thread, so no other one waits for a lock. */
static void run_in_child(void)
{
	for (int i = FORK_PLACES; i-- > 0;) {
		if (handlers[i].lock)
			*handlers[i].lock = 0;
		if (handlers[i].child)
			handlers[i].child();
	}
	lock = 0;
}

/*
 * The first call is made by a constructor, so pthread_atfork(3) runs before fork(2) can call
 * run_before_fork. Otherwise the two would wait for each other: C libraries may hold a lock of
 * their own while they run handlers.
 */
int fork_register(enum fork_place place, _Atomic uint32_t *held, void (*prepare)(void),
		  void (*child)(void))
{
	static bool is_registered;
	int err = 0;

	futex_lock(&lock);
	if (!is_registered)
		err = pthread_atfork(run_before_fork, unlock_in_parent, run_in_child);
	is_registered = !err;
	handlers[place].lock = held;
	handlers[place].prepare = prepare;
	handlers[place].child = child;
	futex_unlock(&lock);
	return err;
}
