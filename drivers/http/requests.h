/* SPDX-License-Identifier: BSD-3-Clause */
/* The requests of other threads, as the loop sees them. loop.h has the functions of these
 * threads. */
#ifndef DRIVERS_HTTP_REQUESTS_H
#define DRIVERS_HTTP_REQUESTS_H

#include "http.h"

/* Takes all sent requests, as a list in the order in which they were sent. */
struct request *requests_take_sent(void);
/* The thread that calls exit(3) calls this function when the loop has ended: all requests fail, for
 * other threads after a while. */
void requests_give_up(void);
/* In a forked child: all requests are free. */
void requests_reset(void);

#endif
