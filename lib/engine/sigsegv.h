/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's SIGSEGV and SIGBUS: the library's handler comes first, and passes all other faults
 * to the application's handler. */
#ifndef SIGSEGV_H
#define SIGSEGV_H

#include "engine/table.h"

#include <signal.h>

/* Installs the library's handler of SIGSEGV, which calls `serve` for each fault. Returns 0 or
 * -errno with a sentence. */
int sigsegv_start(enum fault_answer (*serve)(struct fault *fault));
/* Installs the library's handler of SIGBUS, unless it is installed. Returns 0 or -errno with a
 * sentence. */
int sigsegv_start_bus(void);
/* Installs the handlers again if the program has replaced one without sigaction(3) or signal(3). */
void sigsegv_keep(void);
/* Reads from the kernel which signals have no handler, because a program may install handlers by
 * system calls of its own. */
void sigsegv_read_others(void);
/* Handlers of fork(2): the first runs in the thread that forks; the second in the child, where no
 * other thread holds a lock. */
void sigsegv_fork_prepare(void);
void sigsegv_fork_child(void);
/* For handlers that call the library themselves (umfault): returns whether the fault was the
 * library's. */
bool sigsegv_serve(int sig, siginfo_t *info, void *context);
/* Debuggers stop at these functions, which do nothing. After a call of the first, faults are part
 * of normal work, and after a call of the second those by SIGBUS, too. The third is called before
 * an unhandled fault happens again, to end the process. */
void ummap_debug_begin(void);
void ummap_debug_begin_bus(void);
void ummap_debug_crash(void);

#endif
