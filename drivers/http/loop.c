/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread of the loop, which has all sockets. It takes the requests that other threads have sent
 * (requests.c), divides them into transfers, and ends them. All of its state belongs to the thread
 * alone.
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
#include "requests.h"
#include "sockets.h"
#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_STREAMS 128L        /* exchanges in one HTTP/2 connection */
#define FEW_REQUESTS_PART 4     /* this part of the requests is few; part of the range for them */
#define MIN_RANGE_BYTES 4096
#define MAX_POLL_MS 1000        /* longest wait of the thread while requests wait for a time */
#define IDLE_POLL_MS 600000     /* longest wait of the thread without requests */

static int wake_fd = -1;                 /* eventfd that the thread polls */

static _Atomic uint32_t starting;
static unsigned open_count;              /* open handles */
static bool is_running;                  /* whether there is a thread */
static pthread_t thread;
static _Atomic bool must_end;            /* whether the thread must end */
static bool has_exited;                  /* whether it has ended, because the process exits */

/* The loop's own state. */
static CURLM *multi;
static struct request *queue, **queue_end = &queue; /* requests with bytes to begin, in order */
static struct transfer *transfers;       /* all transfers with a request */

void loop_wake(void)
{
	uint64_t one = 1;
	ssize_t n;

	/* The only possible error is that the thread has not yet read a huge number. */
	n = write(wake_fd, &one, sizeof(one));
	(void)n;
}

/* ---- The thread: requests and their transfers ---- */

/* Appends all sent requests to the queue. */
static void take_sent(void)
{
	*queue_end = requests_take_sent();
	while (*queue_end)
		queue_end = &(*queue_end)->next;
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

/* While few transfers are in flight, a load is divided among more of them, because a new connection
 * is slow at first. */
static size_t longest_range(const struct remote *remote)
{
	bool are_few = remote->active <= remote->keys.requests / FEW_REQUESTS_PART;

	return are_few ? max_size(remote->keys.range / FEW_REQUESTS_PART, MIN_RANGE_BYTES) :
			 remote->keys.range;
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
	t->len = min_size(r->len - r->begun, longest_range(r->remote));
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
	end_thread();
	has_exited = true;
	requests_give_up();
}

static void forget_parent(void)
{
	sockets_close_all();
	if (wake_fd >= 0)
		close(wake_fd);
	wake_fd = -1;
	open_count = 0;
	is_running = false;
	queue = NULL;
	queue_end = &queue;
	transfers = NULL;
	multi = NULL;
	requests_reset();
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
	if (has_exited)
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
