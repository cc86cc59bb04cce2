/* SPDX-License-Identifier: BSD-3-Clause */
/* The base of the C library's calls that install signal handlers. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <signal.h>

/* Not instrumented, because sanitizers call these functions before their own state exists. */
#define PUBLIC __attribute__((visibility("default"), no_sanitize("thread")))

/* Works as sigaction(3), but keeps the application's handler of SIGSEGV behind the library's.
 * Exported for libraries that are preloaded. */
int ummap_sigaction(int sig, const struct sigaction *act, struct sigaction *old);

#endif
