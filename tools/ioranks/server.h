/* SPDX-License-Identifier: BSD-3-Clause */
/* An I/O process: writes to files for other processes of the machine. */
#ifndef IO_RANKS_SERVER_H
#define IO_RANKS_SERVER_H

/* Serves the connections of a listening socket. Returns when the last connection has ended. */
void serve(int listener);

#endif
