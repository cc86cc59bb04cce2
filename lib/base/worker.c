/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three bounded queues, each with threads of its own. One has jobs, which may wait for segments.
 * The second one has calls of drivers that must not run in a signal handler; these calls wait for
 * no lock of the library. A fault holds its segment's lock while it waits for its call. In one
 * common queue, that call could be behind jobs that wait for the same segment, which is a
 * deadlock. The third queue has long jobs, with a thread for each: a commit takes as long as the
 * rate of its mapping demands, and must not delay jobs of other mappings, for whose end threads
 * wait. The lock of a queue is a leaf and is held while one entry is copied. The threads live as
 * long as the process.
 */
#include "base/worker.h"

#include "base/log.h"
#include "base/place.h"
#include "base/sys.h"

#include <string.h>

#define QUEUE_LENGTH 256 /* a power of two */

struct job {
	worker_fn *fn;            /* function to call with these arguments */
	void *arg;
	uint64_t a, b;
	unsigned place;           /* place of the thread that has posted the job */
};

struct pool {
	struct job queue[QUEUE_LENGTH];
	unsigned head, tail;      /* positions: jobs [head, tail) wait */
	_Atomic uint32_t lock;    /* lock of the queue */
	_Atomic uint32_t posted;  /* number of posts so far; idle threads wait on it */
	_Atomic uint32_t idle;    /* number of idle threads */
	_Atomic unsigned unfinished; /* number of jobs that wait or run */
	unsigned threads;         /* number of threads */
};

static struct pool jobs, calls, long_jobs;
static _Atomic uint32_t starting; /* lock */
static _Thread_local bool is_worker __attribute__((tls_model("initial-exec")));

static bool take_job(struct pool *p, struct job *job)
{
	bool taken;

	futex_lock(&p->lock);
	taken = p->head != p->tail;
	if (taken)
		*job = p->queue[p->head++ % QUEUE_LENGTH];
	futex_unlock(&p->lock);
	return taken;
}

static void *run_thread(void *pool)
{
	struct pool *p = pool;
	struct job job;

	is_worker = true;
	for (;;) {
		uint32_t seen = p->posted;

		if (take_job(p, &job)) {
			place_set_thread(job.place);
			job.fn(job.arg, job.a, job.b);
			p->unfinished--;
			continue;
		}
		p->idle++;
		futex_wait(&p->posted, seen, -1);
		p->idle--;
	}
	return NULL;
}

static int start_threads(struct pool *p, unsigned n)
{
	int err = 0;

	while (p->threads < n && !err) {
		err = sys_start_thread(run_thread, p);
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
	err = start_threads(p, n);
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

static bool post_job(struct pool *p, worker_fn *fn, void *arg, uint64_t a, uint64_t b)
{
	unsigned place = place_of_thread();
	bool has_room;

	futex_lock(&p->lock);
	has_room = p->tail - p->head < QUEUE_LENGTH;
	if (has_room) {
		p->queue[p->tail++ % QUEUE_LENGTH] = (struct job){ fn, arg, a, b, place };
		p->unfinished++;
	}
	futex_unlock(&p->lock);
	if (has_room) {
		p->posted++;
		if (p->idle)
			futex_wake(&p->posted, 1);
	}
	return has_room;
}

bool worker_post(worker_fn *fn, void *arg, uint64_t a, uint64_t b)
{
	return post_job(&jobs, fn, arg, a, b);
}

bool worker_post_long(worker_fn *fn, void *arg, uint64_t a, uint64_t b)
{
	if (start_locked(&long_jobs, 1) < 0 || !post_job(&long_jobs, fn, arg, a, b))
		return worker_post(fn, arg, a, b);
	/* If no more threads can be started, the job waits for one of them. */
	start_locked(&long_jobs, long_jobs.unfinished);
	return true;
}

struct call {
	void (*fn)(void *arg);    /* function to call */
	void *arg;                /* its argument */
	_Atomic uint32_t done;    /* 1: the call has returned */
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

	if (is_worker) {
		fn(arg);
		return;
	}
	/* While the queue is full, tries again each millisecond. */
	while (!post_job(&calls, serve_call, &call, 0, 0))
		futex_wait(&call.done, 0, 1);
	while (!call.done)
		futex_wait(&call.done, 0, -1);
}

static void forget_threads(struct pool *p)
{
	p->head = p->tail = 0;
	p->lock = 0;
	p->idle = 0;
	p->unfinished = 0;
	p->threads = 0;
}

void worker_forget(void)
{
	forget_threads(&jobs);
	forget_threads(&calls);
	forget_threads(&long_jobs);
	starting = 0;
}
