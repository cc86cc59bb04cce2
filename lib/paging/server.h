/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads that serve accesses which come by userfaultfd. */
#ifndef SERVER_H
#define SERVER_H

/* What such a thread runs, for ever. */
void *server_run(void *unused);

#endif
