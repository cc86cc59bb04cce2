/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop. Requests come from threads that may be in a signal handler: they take a request from a
 * fixed table, push it onto a list by compare-and-swap, and write to an eventfd. The thread of the
 * loop takes the whole list, so no thread ever waits for a lock. Everything else belongs to the
 * thread of the loop alone.
 *
 * A thread that waits for its requests waits on one of a few words, which it may share with other
 * threads. The word changes after the state of a request.
 *
 * Lock: `starting`, for the number of open handles and the start of the thread. It is held during
 * fork(2). In the child, there is no loop; its first open handle starts another one. The library
 * closes the handles of the parent before the handler of this file runs in the child.
 */
#include "loop.h"

#include "common/fork.h"
#include "common/futex.h"
#include "common/minmax.h"
#include "../thread.h"
#include "sockets.h"
#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_REQUESTS 256
#define MAX_STREAMS 128L        /* exchanges in one HTTP/2 connection */
#define MAX_WORDS 16            /* words that threads wait on; power of two */
#define MAX_POLL_MS 1000        /* longest wait of the thread while requests wait for a time */
#define IDLE_POLL_MS 600000     /* longest wait of the thread without requests */
#define FREE_WAIT_MS 10         /* wait for a free request */
#define EXIT_WAIT_MS 2000       /* time after which loads fail while the process ends */

static struct request requests[MAX_REQUESTS];
static _Atomic uint32_t words[MAX_WORDS];
static struct request *_Atomic sent;     /* requests that threads have sent, the last one first */
static int wake_fd = -1;                 /* eventfd that the thread polls */

static _Atomic uint32_t starting;
static unsigned open_count;              /* open handles */
static bool is_running;                  /* whether there is a thread */
static pthread_t thread;
static _Atomic bool must_end;            /* whether the thread must end */
static _Atomic bool has_ended;           /* whether it has ended, because the process exits */
static pthread_t exit_thread;            /* thread that called exit(3) */

/* The loop's own state. */
static CURLM *multi;
static struct request *queue, **queue_end = &queue; /* requests with bytes to begin, in order */
static struct transfer *transfers;       /* all transfers with a request */

int64_t loop_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Requests of other threads ---- */

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

void loop_wake(void)
{
	uint64_t one = 1;
	ssize_t n;

	/* The only possible error is that the thread has not yet read a huge number. */
	n = write(wake_fd, &one, sizeof(one));
	(void)n;
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

/* ---- The thread: requests and their transfers ---- */

/* Appends all sent requests to the queue, in the order in which they were sent. */
static void take_sent(void)
{
	struct request *r = atomic_exchange(&sent, NULL), *in_order = NULL;

	while (r) {
		struct request *next = r->next;

		r->next = in_order;
		in_order = r;
		r = next;
	}
	while (in_order) {
		*queue_end = in_order;
		queue_end = &in_order->next;
		in_order = in_order->next;
	}
	*queue_end = NULL;
}

static void unqueue(struct request **place)
{
	struct request *r = *place;

	*place = r->next;
	if (!*place)
		queue_end = place;
}

static void end_transfer(struct transfer **place)
{
	struct transfer *t = *place;

	*place = t->next;
	if (t->runs)
		curl_multi_remove_handle(multi, t->easy);
	t->runs = false;
	t->request->active--;
	transfer_release(t);
}

/* Ends a request whose transfers have all ended; a failed one, with its transfers. Its buffer must
 * not be written to after this. */
static void end_request(struct request *r, int res)
{
	for (struct request **place = &queue; *place; place = &(*place)->next) {
		if (*place == r) {
			unqueue(place);
			break;
		}
	}
	for (struct transfer **place = &transfers; r->active;) {
		if ((*place)->request == r)
			end_transfer(place);
		else
			place = &(*place)->next;
	}
	loop_end(r, res);
}

static void fail_request(struct request *r, int res, const char *why)
{
	snprintf(r->remote->why, sizeof(r->remote->why), "%s", why);
	r->res = res;
}

/* Begins an exchange. Returns false if the request has failed. */
static bool run_transfer(struct transfer *t)
{
	int err = transfer_prepare(t);

	if (!err && curl_multi_add_handle(multi, t->easy) != CURLM_OK)
		err = -ENOMEM;
	if (err)
		fail_request(t->request, err, "there is not enough memory for a transfer");
	t->runs = !err;
	return !err;
}

/* Adds a transfer for the next bytes of a request. Returns false if the request has failed. */
static bool begin_transfer(struct request *r)
{
	struct transfer *t = transfer_take(r->remote);

	if (!t) {
		fail_request(r, -ENOMEM, "there is not enough memory for a transfer");
		return false;
	}
	t->request = r;
	t->at = r->begun;
	t->len = min_size(r->len - r->begun, r->remote->keys.range);
	r->begun += t->len;
	r->active++;
	t->next = transfers;
	transfers = t;
	return run_transfer(t);
}

/* Reports the first failure of a handle, which no call explains. */
static void report(struct remote *remote, const struct request *r)
{
	if (!r->io || remote->has_noticed)
		return;
	remote->has_noticed = true;
	notice_give(&remote->notice, "cannot load bytes %llu to %llu of '%.200s': %s",
		    (unsigned long long)r->off, (unsigned long long)(r->off + r->len - 1),
		    remote->shown, remote->why);
}

static void fail(struct request *r)
{
	report(r->remote, r);
	end_request(r, r->res);
}

/* Begins transfers for the queue, as many as the handles may have. */
static void begin_queued(void)
{
	struct request **place = &queue;

	while (*place) {
		struct request *r = *place;
		const struct remote *remote = r->remote;
		bool ok = true;

		if (remote->has_changed) {
			end_request(r, -EIO);
			continue;
		}
		while (ok && r->begun < r->len && remote->active < remote->keys.requests)
			ok = begin_transfer(r);
		if (!ok)
			fail(r);
		else if (r->begun == r->len)
			unqueue(place);
		else
			place = &r->next;
	}
}

static struct transfer **find_transfer(const CURL *easy)
{
	struct transfer **place = &transfers;

	while ((*place)->easy != easy)
		place = &(*place)->next;
	return place;
}

static void finish_exchange(struct transfer **place, CURLcode result)
{
	struct transfer *t = *place;
	struct request *r = t->request;

	curl_multi_remove_handle(multi, t->easy);
	t->runs = false;
	switch (transfer_finish(t, result)) {
	case OUTCOME_AGAIN:
		break;
	case OUTCOME_FAILED:
		fail(r);
		break;
	case OUTCOME_DONE:
		r->remote->has_noticed = false;
		end_transfer(place);
		if (!r->active && r->begun == r->len)
			loop_end(r, 0);
		break;
	}
}

static void finish_exchanges(void)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(multi, &left))) {
		if (message->msg == CURLMSG_DONE)
			finish_exchange(find_transfer(message->easy_handle), message->data.result);
	}
}

/* Repeats transfers whose time has come. Returns ms until the next time. */
static int repeat_transfers(int64_t now)
{
	int64_t wait = MAX_POLL_MS;
	struct transfer *t = transfers;

	while (t) {
		if (t->runs || t->again_at > now) {
			if (!t->runs && t->again_at - now < wait)
				wait = t->again_at - now;
			t = t->next;
		} else if (run_transfer(t)) {
			t = t->next;
		} else {
			/* The list has changed. */
			fail(t->request);
			t = transfers;
		}
	}
	return (int)wait;
}

/* Fails requests that have waited in the queue for too long. Transfers have limits of their
 * own. */
static void expire_queued(int64_t now)
{
	for (struct request *r = queue, *next; r; r = next) {
		next = r->next;
		if (r->deadline > now)
			continue;
		fail_request(r, -EIO, "the server has not answered in time (key timeout)");
		fail(r);
	}
}

/* ---- The thread: its life ---- */

static void drain_wake(void)
{
	uint64_t count;
	ssize_t n = read(wake_fd, &count, sizeof(count));

	(void)n;
}

static void run_once(void)
{
	struct curl_waitfd wake = { .fd = wake_fd, .events = CURL_WAIT_POLLIN };
	int running, wait;

	take_sent();
	begin_queued();
	curl_multi_perform(multi, &running);
	finish_exchanges();
	expire_queued(loop_now());
	begin_queued();
	wait = repeat_transfers(loop_now());
	curl_multi_poll(multi, &wake, 1, queue || transfers ? wait : IDLE_POLL_MS, NULL);
	if (wake.revents)
		drain_wake();
}

/* At exit, there may be transfers, which stay as they are. */
static void *run_loop(void *unused)
{
	(void)unused;
	while (!must_end)
		run_once();
	if (!transfers)
		sockets_close_multi(multi);
	return NULL;
}

static void end_thread(void)
{
	must_end = true;
	loop_wake();
	pthread_join(thread, NULL);
	must_end = false;
	is_running = false;
}

/* Runs before the handlers by which TLS libraries free what the thread uses. */
static void end_at_exit(void)
{
	if (!is_running)
		return;
	exit_thread = pthread_self();
	end_thread();
	has_ended = true;
	for (unsigned i = 0; i < MAX_WORDS; i++) {
		++words[i];
		futex_wake(&words[i], INT32_MAX);
	}
}

static void forget_parent(void)
{
	sockets_close_all();
	if (wake_fd >= 0)
		close(wake_fd);
	wake_fd = -1;
	open_count = 0;
	is_running = false;
	sent = NULL;
	queue = NULL;
	queue_end = &queue;
	transfers = NULL;
	multi = NULL;
	memset(requests, 0, sizeof(requests));
}

static int start_locked(void)
{
	static bool is_initialized;
	int err;

	if (!is_initialized && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return -ENOMEM;
	if (!is_initialized && atexit(end_at_exit) != 0)
		return -ENOMEM;
	is_initialized = true;
	if (has_ended)
		return -EIO;
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return -errno;
	multi = sockets_open_multi();
	err = multi ? thread_start(&thread, run_loop, NULL) : -ENOMEM;
	is_running = !err;
	if (!err) {
		curl_multi_setopt(multi, CURLMOPT_MAX_CONCURRENT_STREAMS, MAX_STREAMS);
		return 0;
	}
	if (multi)
		sockets_close_multi(multi);
	close(wake_fd);
	wake_fd = -1;
	return err;
}

__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_HTTP, &starting, NULL, forget_parent);
}

int loop_join(struct remote *remote)
{
	int err = 0;

	futex_lock(&starting);
	if (!is_running)
		err = start_locked();
	if (!err)
		open_count++;
	remote->owner = getpid();
	futex_unlock(&starting);
	return err;
}

void loop_leave(void)
{
	futex_lock(&starting);
	if (--open_count == 0 && is_running) {
		end_thread();
		close(wake_fd);
		wake_fd = -1;
	}
	futex_unlock(&starting);
}

bool loop_is_foreign(const struct remote *remote)
{
	return remote->owner != getpid();
}
