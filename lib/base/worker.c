/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two bounded queues and a few threads for each: jobs, which may wait for segments, and calls of drivers that must not
 * run in a signal handler, which wait for no lock of the library. A fault holds its segment's lock while it waits for
 * its call; if calls were queued behind jobs, jobs that wait for that segment could block them for ever. The lock of a
 * queue is a leaf, held for a copy only. The threads block every signal, are detached, and live as long as the process.
 */
#include "base/worker.h"

#include "base/log.h"
#include "base/sys.h"

#include <string.h>

#define QUEUE 256 /* power of two */

struct job {
	worker_fn *fn;
	void *arg;
	uint64_t a, b;
};

struct pool {
	struct job queue[QUEUE];
	unsigned head, tail;      /* jobs [head, tail) wait */
	_Atomic uint32_t lock;
	_Atomic uint32_t posted;  /* counts posts; idle threads wait on it */
	_Atomic uint32_t idle;
	unsigned threads;
};

static struct pool jobs, calls;
static _Atomic uint32_t starting;
static _Thread_local bool working __attribute__((tls_model("initial-exec")));

static bool take(struct pool *p, struct job *job)
{
	bool got = false;

	futex_lock(&p->lock);
	if (p->head != p->tail) {
		*job = p->queue[p->head++ % QUEUE];
		got = true;
	}
	futex_unlock(&p->lock);
	return got;
}

static void *run(void *pool)
{
	struct pool *p = pool;
	struct job job;

	working = true;
	for (;;) {
		uint32_t seen = p->posted;

		if (take(p, &job)) {
			job.fn(job.arg, job.a, job.b);
			continue;
		}
		p->idle++;
		futex_wait(&p->posted, seen, -1);
		p->idle--;
	}
	return NULL;
}

static int start(struct pool *p, unsigned n)
{
	int err = 0;

	while (p->threads < n && !err) {
		err = sys_thread(run, p);
		if (!err)
			p->threads++;
	}
	if (err && p->threads == 0)
		return fail(-err, "cannot start a thread for background I/O: %s" SYS_THREAD_LIMITS,
			    strerror(-err));
	return 0;
}

static int start_locked(struct pool *p, unsigned n)
{
	int err;

	futex_lock(&starting);
	err = start(p, n);
	futex_unlock(&starting);
	return err;
}

int worker_start(unsigned n)
{
	return start_locked(&jobs, n);
}

int worker_start_calls(unsigned n)
{
	return start_locked(&calls, n);
}

static bool post(struct pool *p, worker_fn *fn, void *arg, uint64_t a, uint64_t b)
{
	bool room;

	futex_lock(&p->lock);
	room = p->tail - p->head < QUEUE;
	if (room)
		p->queue[p->tail++ % QUEUE] = (struct job){ fn, arg, a, b };
	futex_unlock(&p->lock);
	if (room) {
		p->posted++;
		if (p->idle)
			futex_wake(&p->posted, 1);
	}
	return room;
}

bool worker_post(worker_fn *fn, void *arg, uint64_t a, uint64_t b)
{
	return post(&jobs, fn, arg, a, b);
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
	futex_wake(&call->done, 1);
}

void worker_call(void (*fn)(void *arg), void *arg)
{
	struct call call = { fn, arg, 0 };

	if (working) {
		fn(arg);
		return;
	}
	while (!post(&calls, serve_call, &call, 0, 0))
		futex_wait(&call.done, 0, 1);
	while (!call.done)
		futex_wait(&call.done, 0, -1);
}

static void forget(struct pool *p)
{
	p->head = p->tail = 0;
	p->lock = 0;
	p->idle = 0;
	p->threads = 0;
}

void worker_forget(void)
{
	forget(&jobs);
	forget(&calls);
	starting = 0;
}
