/* SPDX-License-Identifier: BSD-3-Clause */
/* What the calls of the C library that install handlers are made of. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <signal.h>

/* Sanitizers call them while they start, before their own state exists. */
#define PUBLIC __attribute__((visibility("default"), no_sanitize("thread")))

/* sigaction(3), with the application's SIGSEGV behind the library's. Exported for libraries that are preloaded. */
int ummap_sigaction(int sig, const struct sigaction *act, struct sigaction *old);

#endif
