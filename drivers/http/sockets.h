/* SPDX-License-Identifier: BSD-3-Clause */
/* The sockets of the process's loop, so that a forked child can close its copies of them. */
#ifndef DRIVERS_HTTP_SOCKETS_H
#define DRIVERS_HTTP_SOCKETS_H

#include <curl/curl.h>

/* Begins and ends a group of connections. NULL: no memory. */
CURLM *sockets_open_multi(void);
void sockets_close_multi(CURLM *multi);
/* Makes libcurl open and close sockets by this file. */
void sockets_watch(CURL *easy);
/* The exchange has timed out after so many seconds without progress: ends its connection if no byte
 * has come on it for half of that time. */
void sockets_end_stalled(CURL *easy, long seconds);
/* In a forked child: closes all sockets of the parent. The parent keeps its own. */
void sockets_close_all(void);

#endif
