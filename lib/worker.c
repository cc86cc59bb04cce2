/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bounded queue of jobs and a few threads. Its lock is a leaf, held for a copy only; jobs run without it.
 * The threads block every signal, are detached, and live as long as the process.
 */
#include "worker.h"

#include "log.h"
#include "sys.h"

#include <pthread.h>
#include <string.h>

#define QUEUE 256 /* power of two */

struct job {
	worker_fn *fn;
	void *arg;
	uint64_t a, b;
};

static struct job queue[QUEUE];
static unsigned head, tail;          /* jobs [head, tail) wait */
static _Atomic uint32_t lock;
static _Atomic uint32_t posted;      /* counts posts; idle threads wait on it */
static _Atomic uint32_t idle;
static unsigned threads;
static _Thread_local bool working __attribute__((tls_model("initial-exec")));

static bool take(struct job *job)
{
	bool got = false;

	futex_lock(&lock);
	if (head != tail) {
		*job = queue[head++ % QUEUE];
		got = true;
	}
	futex_unlock(&lock);
	return got;
}

static void *run(void *unused)
{
	struct job job;

	(void)unused;
	working = true;
	for (;;) {
		uint32_t seen = posted;

		if (take(&job)) {
			job.fn(job.arg, job.a, job.b);
			continue;
		}
		idle++;
		sys_wait(&posted, seen, -1);
		idle--;
	}
	return NULL;
}

int worker_start(unsigned n)
{
	struct guard g;
	pthread_attr_t attr;
	pthread_t thread;
	int err = 0;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	guard_enter(&g);
	while (threads < n && !err) {
		err = pthread_create(&thread, &attr, run, NULL);
		if (!err)
			threads++;
	}
	guard_leave(&g);
	pthread_attr_destroy(&attr);
	if (err && threads == 0)
		return fail(err, "no thread can be started for background I/O: %s", strerror(err));
	return 0;
}

bool worker_post(worker_fn *fn, void *arg, uint64_t a, uint64_t b)
{
	bool room;

	futex_lock(&lock);
	room = tail - head < QUEUE;
	if (room)
		queue[tail++ % QUEUE] = (struct job){ fn, arg, a, b };
	futex_unlock(&lock);
	if (room) {
		posted++;
		if (idle)
			sys_wake(&posted, 1);
	}
	return room;
}

struct call {
	void (*fn)(void *arg);
	void *arg;
	_Atomic uint32_t done;
};

static void serve_call(void *arg, uint64_t a, uint64_t b)
{
	struct call *call = arg;

	(void)a;
	(void)b;
	call->fn(call->arg);
	call->done = 1;
	sys_wake(&call->done, 1);
}

void worker_call(void (*fn)(void *arg), void *arg)
{
	struct call call = { fn, arg, 0 };

	if (working) {
		fn(arg);
		return;
	}
	while (!worker_post(serve_call, &call, 0, 0))
		sys_wait(&call.done, 0, 1);
	while (!call.done)
		sys_wait(&call.done, 0, -1);
}

void worker_forget(void)
{
	head = tail = 0;
	lock = 0;
	idle = 0;
	threads = 0;
}
