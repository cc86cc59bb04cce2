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
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_STREAMS 128L        /* exchanges in one HTTP/2 connection */
#define FEW_REQUESTS_PART 4     /* this part of the requests is few */
#define FEW_RANGE_BYTES ((size_t)512 << 10) /* longest range for few requests */
#define MAX_CONNECTIONS 256L    /* connections that are kept for later transfers */
#define MAX_EVENTS 64           /* sockets of which the one with the first transfer is served */
#define ORDERED_TRANSFERS 128   /* transfers that are served in the order of their bytes */
#define MAX_POLL_MS 1000        /* longest wait of the thread while requests wait for a time */
#define IDLE_POLL_MS 600000     /* longest wait of the thread without requests */

static int wake_fd = -1;                 /* eventfd by which other threads wake the thread */
static int poll_fd = -1;                 /* epoll of wake_fd and of the sockets */

static _Atomic uint32_t starting;
static unsigned open_count;              /* open handles */
static bool is_running;                  /* whether there is a thread */
static pthread_t thread;
static _Atomic bool must_end;            /* whether the thread must end */
static bool has_exited;                  /* whether it has ended, because the process exits */

/* The loop's own state. */
static CURLM *multi;
static int64_t timer_at = -1;            /* time in ms at which libcurl must be called; -1: never */
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

/* The requests behind one that has failed begin again. */
static void queue_again(struct request *r)
{
	while (r) {
		struct request *next = r->next;

		r->begun = r->active = 0;
		r->next = NULL;
		*queue_end = r;
		queue_end = &r->next;
		r = next;
	}
}

static void end_transfer(struct transfer **place)
{
	struct transfer *t = *place;

	*place = t->next;
	if (t->runs)
		curl_multi_remove_handle(multi, t->easy);
	t->runs = false;
	t->request->active--;
	queue_again(t->more);
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
	futex_lock(&r->remote->lock);
	snprintf(r->remote->why, sizeof(r->remote->why), "%s", why);
	futex_unlock(&r->remote->lock);
	r->res = res;
}

static void fail_late(struct request *r)
{
	fail_request(r, -EIO, "the server has not answered in time (key timeout)");
}

/* Begins an exchange. Returns false if the request has failed. */
static bool run_transfer(struct transfer *t)
{
	int err;

	/* Exchanges that each make a little progress must not go on forever. */
	if (t->request->deadline <= loop_now()) {
		fail_late(t->request);
		return false;
	}
	err = transfer_prepare(t);
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
	size_t range = remote->keys.range ? remote->keys.range : range_length(&remote->pace);

	return are_few ? min_size(range, FEW_RANGE_BYTES) : range;
}

/* Whether a request is for the bytes after those of a transfer that ends with another request. */
static bool continues(const struct request *r, const struct request *before)
{
	return r && r->remote == before->remote && r->off == before->off + before->len &&
	       r->begun == 0 && r->io && before->io;
}

/* Extends a transfer, which reads the end of a request in the queue, by the requests behind it. */
static void join_next(struct transfer *t, struct request *r, size_t longest)
{
	struct request **end = &t->more, *next, *last = r;

	while (continues(next = r->next, last) && t->len + next->len <= longest) {
		unqueue(&r->next);
		t->len += next->len;
		next->begun = next->len;
		next->active++;
		next->next = NULL;
		*end = last = next;
		end = &next->next;
	}
}

/* The order of transfers: groups of them in the order in which they begin, and in each group the
 * order of their bytes, modulo 2^39. The threads of readahead begin in a random order what a
 * program reads in the order of its bytes. */
static uint32_t next_order(uint64_t off)
{
	static uint32_t begun;

	return begun++ / ORDERED_TRANSFERS << 20 | (uint32_t)(off >> 19 & 0xfffff);
}

/* Adds a transfer for the next bytes of a request. Returns false if the request has failed. */
static bool begin_transfer(struct request *r)
{
	size_t longest = longest_range(r->remote);
	struct transfer *t = transfer_take(r->remote);

	if (!t) {
		fail_request(r, -ENOMEM, "there is not enough memory for a transfer");
		return false;
	}
	t->request = r;
	t->at = r->begun;
	t->order = next_order(r->off + t->at);
	t->len = min_size(r->len - r->begun, longest);
	r->begun += t->len;
	r->active++;
	if (r->begun == r->len)
		join_next(t, r, longest);
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

		if (remote->lost == remote->version) {
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

/* Returns whether an exchange has ended. */
static bool finish_exchanges(void)
{
	bool any = false;
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(multi, &left))) {
		if (message->msg != CURLMSG_DONE)
			continue;
		finish_exchange(find_transfer(message->easy_handle), message->data.result);
		any = true;
	}
	return any;
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
		fail_late(r);
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

/* The data of an event: a socket, and the order of its transfer in the upper half. */
static uint64_t event_data(int fd, const struct transfer *t)
{
	return (uint64_t)(t ? t->order : 0) << 32 | (uint32_t)fd;
}

/* libcurl calls this function when it begins to wait for a socket, or waits no more. */
static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *unused, void *none)
{
	struct epoll_event event = {
		.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) |
			  (what & CURL_POLL_OUT ? EPOLLOUT : 0u),
	};
	struct transfer *t = NULL;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, &t);
	event.data.u64 = event_data(fd, t);
	(void)unused;
	(void)none;
	if (what == CURL_POLL_REMOVE)
		epoll_ctl(poll_fd, EPOLL_CTL_DEL, fd, &event);
	else if (epoll_ctl(poll_fd, EPOLL_CTL_MOD, fd, &event) < 0)
		return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
	return 0;
}

static int set_timer(CURLM *unused, long ms, void *none)
{
	(void)unused;
	(void)none;
	timer_at = ms < 0 ? -1 : loop_now() + ms;
	return 0;
}

static void run_timer(void)
{
	int running;

	if (timer_at < 0 || timer_at > loop_now())
		return;
	timer_at = -1;
	curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

/* The event whose transfer comes first. */
static const struct epoll_event *choose_event(const struct epoll_event *events, int n)
{
	const struct epoll_event *first = events;

	for (const struct epoll_event *e = events + 1; e < events + n; e++) {
		uint32_t distance = (uint32_t)(e->data.u64 >> 32) -
				    (uint32_t)(first->data.u64 >> 32);

		/* Orders wrap around. */
		if (distance > INT32_MAX)
			first = e;
	}
	return first;
}

/*
 * Waits at most for so many ms, and then reads or writes one socket. New requests must not wait
 * until the answers on all sockets have been read: the server would have nothing to do meanwhile.
 * Transfers that begin together must not end together, so they are served one after the other: the
 * program needs the bytes in this order, and each end makes room for a new request.
 */
static void serve_socket(int64_t wait)
{
	int64_t timer = timer_at < 0 ? wait : timer_at - loop_now();
	struct epoll_event events[MAX_EVENTS];
	const struct epoll_event *e;
	int running, what, n, fd;

	wait = timer < wait ? timer : wait;
	n = epoll_wait(poll_fd, events, MAX_EVENTS, wait > 0 ? (int)wait : 0);
	if (n <= 0)
		return;
	e = choose_event(events, n);
	fd = (int)(uint32_t)e->data.u64;
	what = (e->events & EPOLLIN ? CURL_CSELECT_IN : 0) |
	       (e->events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
	       (e->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
	if (fd == wake_fd)
		drain_wake();
	else
		curl_multi_socket_action(multi, fd, what, &running);
}

/* A near server may answer before libcurl returns, so exchanges are finished before the thread
 * waits for a socket. */
static void run_once(void)
{
	int64_t wait;

	take_sent();
	begin_queued();
	wait = repeat_transfers(loop_now());
	run_timer();
	if (!finish_exchanges())
		serve_socket(queue || transfers ? wait : IDLE_POLL_MS);
	expire_queued(loop_now());
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

static void close_descriptors(void)
{
	if (wake_fd >= 0)
		close(wake_fd);
	if (poll_fd >= 0)
		close(poll_fd);
	wake_fd = poll_fd = -1;
}

static void forget_parent(void)
{
	sockets_close_all();
	close_descriptors();
	open_count = 0;
	is_running = false;
	queue = NULL;
	queue_end = &queue;
	transfers = NULL;
	multi = NULL;
	requests_reset();
}

static int open_descriptors(void)
{
	struct epoll_event event = { .events = EPOLLIN };

	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event.data.u64 = event_data(wake_fd, NULL);
	poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (wake_fd < 0 || poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, wake_fd, &event) < 0)
		return -errno;
	return 0;
}

static int open_multi(void)
{
	timer_at = -1;
	multi = sockets_open_multi();
	if (!multi)
		return -ENOMEM;
	curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, set_timer);
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, MAX_CONNECTIONS);
	curl_multi_setopt(multi, CURLMOPT_MAX_CONCURRENT_STREAMS, MAX_STREAMS);
	return 0;
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
	err = open_descriptors();
	if (!err)
		err = open_multi();
	if (!err) {
		err = thread_start(&thread, run_loop, NULL);
		if (err)
			sockets_close_multi(multi);
	}
	is_running = !err;
	if (err)
		close_descriptors();
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
		close_descriptors();
	}
	futex_unlock(&starting);
}

bool loop_is_foreign(const struct remote *remote)
{
	return remote->owner != getpid();
}
