/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts. Nobody who has entered waits for anything but storage. */
#include "mpiio/gate.h"

#include <errno.h>
#include <pthread.h>

/* Of the four threads by which libummap calls drivers: the others must go on. */
#define WAITING_MAX 2

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around these */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool closed;
static unsigned inside, waiting;

bool gate_close(void)
{
	bool mine;

	pthread_mutex_lock(&lock);
	mine = !closed;
	closed = true;
	while (mine && inside > 0)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return mine;
}

void gate_open(void)
{
	pthread_mutex_lock(&lock);
	closed = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

bool gate_enter(void)
{
	bool free;

	pthread_mutex_lock(&lock);
	free = !closed;
	inside += free;
	pthread_mutex_unlock(&lock);
	return free;
}

int gate_wait(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (closed && waiting == WAITING_MAX) {
		err = -EBUSY;
	} else {
		waiting++;
		while (closed)
			pthread_cond_wait(&changed, &lock);
		waiting--;
		inside++;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void gate_leave(void)
{
	pthread_mutex_lock(&lock);
	inside--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
