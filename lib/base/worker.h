/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that run jobs which must not delay a fault (readahead, write-behind), long jobs
 * (commits), and calls of drivers that must not run in a signal handler. */
#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stdint.h>

typedef void worker_fn(void *arg, uint64_t a, uint64_t b);

/* Start threads until n run: for jobs, or for calls. 0, or -errno with a message. */
int worker_start(unsigned n);
int worker_start_calls(unsigned n);
/* Queues the job fn(arg, a, b). false: the queue is full. Safe in a signal handler. */
bool worker_post(worker_fn *fn, void *arg, uint64_t a, uint64_t b);
/* Queues a job that may take long, for a thread that runs nothing else, if that can be started.
 * false: the queue is full. */
bool worker_post_long(worker_fn *fn, void *arg, uint64_t a, uint64_t b);
/* Runs fn(arg) on a thread for calls, and waits for its end. A worker thread calls fn directly. fn
 * may wait for storage only. */
void worker_call(void (*fn)(void *arg), void *arg);
/* In a forked child, which has no worker threads: empties the queues. */
void worker_forget(void);

#endif
