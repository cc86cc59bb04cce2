/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests between the threads that need bytes and the thread of the loop. Threads may be in a
 * signal handler: they take a request from a fixed table, and push it onto a list by
 * compare-and-swap. The thread of the loop takes the whole list, so no thread ever waits for a
 * lock.
 *
 * A thread that waits for its requests waits on one of a few words, which it may share with other
 * threads. The word changes after the state of a request.
 */
#include "requests.h"

#include "common/futex.h"
#include "loop.h"

#include <errno.h>
#include <string.h>

#define MAX_REQUESTS 256
#define MAX_WORDS 16            /* words that threads wait on; power of two */
#define FREE_WAIT_MS 10         /* wait for a free request */
#define EXIT_WAIT_MS 2000       /* time after which loads fail while the process ends */

static struct request requests[MAX_REQUESTS];
static _Atomic uint32_t words[MAX_WORDS];
static struct request *_Atomic sent;     /* requests that threads have sent, the last one first */
static _Atomic bool has_ended;           /* whether the loop has ended, because the process exits */
static pthread_t exit_thread;            /* thread that called exit(3) */

static _Atomic uint32_t *word_of(pthread_t owner)
{
	/* Addresses of threads differ in these bits. */
	return &words[((uintptr_t)owner >> 12 ^ (uintptr_t)owner >> 20) % MAX_WORDS];
}

struct request *loop_take(void)
{
	for (unsigned i = 0; i < MAX_REQUESTS; i++) {
		uint32_t is_free = REQUEST_FREE;

		if (requests[i].state == REQUEST_FREE &&
		    atomic_compare_exchange_strong(&requests[i].state, &is_free, REQUEST_TAKEN)) {
			requests[i].owner = pthread_self();
			requests[i].begun = requests[i].active = 0;
			requests[i].res = 0;
			return &requests[i];
		}
	}
	return NULL;
}

void loop_send(struct request *request)
{
	request->state = REQUEST_BUSY;
	request->next = sent;
	while (!atomic_compare_exchange_weak(&sent, &request->next, request))
		;
}

void loop_end(struct request *request, int res)
{
	_Atomic uint32_t *word = word_of(request->owner);

	request->res = res;
	request->state = REQUEST_DONE;
	++*word;
	futex_wake(word, INT32_MAX);
}

/* A waiting thread misses no wake: loop_await_free is called in a loop. */
void loop_await_free(void)
{
	_Atomic uint32_t *word = word_of(pthread_self());

	futex_wait(word, *word, FREE_WAIT_MS);
}

/* Waits until a request of the thread may have ended; seen: the value of its word before it looked
 * at its requests. */
static void await_word(_Atomic uint32_t *word, uint32_t seen)
{
	futex_wait(word, seen, has_ended ? EXIT_WAIT_MS : -1);
}

/* Ends the thread's requests if the loop cannot. Another thread than the one that called exit(3)
 * waits first: the process will probably be gone before its loads must fail. */
static void end_abandoned(struct request *request)
{
	static _Atomic uint32_t never;

	if (!has_ended || request->state != REQUEST_BUSY)
		return;
	if (!pthread_equal(pthread_self(), exit_thread))
		futex_wait(&never, 0, EXIT_WAIT_MS);
	loop_end(request, -EIO);
}

static bool is_own(const struct request *r, const struct remote *remote)
{
	return r->state >= REQUEST_BUSY && pthread_equal(r->owner, pthread_self()) &&
	       r->remote == remote && r->io;
}

/* Collects finished requests. *busy: the number of others. */
static unsigned collect_now(const struct remote *remote, struct ummap_io **done, unsigned max,
			    unsigned *busy)
{
	unsigned n = 0;

	*busy = 0;
	for (struct request *r = requests; r < requests + MAX_REQUESTS; r++) {
		if (!is_own(r, remote))
			continue;
		end_abandoned(r);
		if (r->state != REQUEST_DONE || n == max) {
			++*busy;
			continue;
		}
		r->io->res = r->res;
		done[n++] = r->io;
		r->state = REQUEST_FREE;
	}
	return n;
}

unsigned loop_collect(const struct remote *remote, struct ummap_io **done, unsigned max,
		      unsigned min)
{
	_Atomic uint32_t *word = word_of(pthread_self());
	unsigned n = 0, busy;

	min = min < max ? min : max;
	for (;;) {
		uint32_t seen = *word;

		n += collect_now(remote, done + n, max - n, &busy);
		if (n >= min || busy == 0)
			return n;
		await_word(word, seen);
	}
}

/* Waits until a request is done. */
static void await(struct request *request)
{
	_Atomic uint32_t *word = word_of(request->owner);

	for (;;) {
		uint32_t seen = *word;

		end_abandoned(request);
		if (request->state == REQUEST_DONE)
			return;
		await_word(word, seen);
	}
}

int loop_await(struct request *request)
{
	int res;

	await(request);
	res = request->res;
	request->state = REQUEST_FREE;
	return res;
}

void loop_drain(const struct remote *remote)
{
	for (struct request *r = requests; r < requests + MAX_REQUESTS; r++) {
		if (r->state < REQUEST_BUSY || r->remote != remote)
			continue;
		await(r);
		r->state = REQUEST_FREE;
	}
}

/* ---- The loop's side ---- */

struct request *requests_take_sent(void)
{
	struct request *r = atomic_exchange(&sent, NULL), *in_order = NULL;

	while (r) {
		struct request *next = r->next;

		r->next = in_order;
		in_order = r;
		r = next;
	}
	return in_order;
}

void requests_give_up(void)
{
	exit_thread = pthread_self();
	has_ended = true;
	for (unsigned i = 0; i < MAX_WORDS; i++) {
		++words[i];
		futex_wake(&words[i], INT32_MAX);
	}
}

void requests_reset(void)
{
	sent = NULL;
	memset(requests, 0, sizeof(requests));
}
