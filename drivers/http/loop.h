/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that makes all HTTP requests of the process, and the requests on their way to it. */
#ifndef DRIVERS_HTTP_LOOP_H
#define DRIVERS_HTTP_LOOP_H

#include "http.h"

/*
 * Starts the thread unless it runs, for one more open handle. loop_leave ends the use; the last one
 * ends the thread and its connections. Not in a signal handler. Returns 0 or a negative errno
 * value.
 */
int loop_join(struct remote *remote);
void loop_leave(void);
/* Whether the handle belongs to the parent of this forked child. */
bool loop_is_foreign(const struct remote *remote);

/*
 * These functions may be called in a signal handler. loop_take returns a request of the calling
 * thread, or NULL if all requests are in use. After its fields are set, loop_send hands it over,
 * and loop_wake makes the thread look at all sent requests.
 */
struct request *loop_take(void);
void loop_send(struct request *request);
void loop_wake(void);
/* Ends a request that the thread has taken and not sent. */
void loop_end(struct request *request, int res);
/* Waits until the calling thread finds a free request, at most for a moment. */
void loop_await_free(void);
/*
 * Waits for at least min requests of the calling thread and of the handle. Returns up to max of
 * them, and frees them. If the thread has fewer, returns those.
 */
unsigned loop_collect(const struct remote *remote, struct ummap_io **done, unsigned max,
		      unsigned min);
/* Waits for all requests of a handle, whichever thread has sent them, and frees them. */
void loop_drain(const struct remote *remote);
/* Waits for a request, frees it and returns its result. */
int loop_await(struct request *request);

/* Milliseconds of the monotonic clock. */
static inline int64_t loop_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif
