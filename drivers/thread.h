/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts a thread of a filter. It blocks all signals, whose handlers belong to the program. */
#ifndef DRIVERS_THREAD_H
#define DRIVERS_THREAD_H

#include <pthread.h>
#include <signal.h>

/* 0, or a negative errno. Not in a signal handler. */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

#endif
