/* SPDX-License-Identifier: BSD-3-Clause */
/* An I/O process: writes to files for other processes of the machine. */
#ifndef IO_RANKS_SERVER_H
#define IO_RANKS_SERVER_H

#include <stdbool.h>

/* Serves the connections of a listening socket. Returns 0 when the last connection has ended; or,
 * with for_holders, the last one that has not opened a file. The others are closed then, so their
 * processes write themselves. Returns -ENOMEM without memory. */
int serve(int listener, bool for_holders);

#endif
