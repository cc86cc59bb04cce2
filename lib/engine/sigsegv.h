/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's SIGSEGV and SIGBUS: the library's handler in front, the application's behind it for all other faults. */
#ifndef SIGSEGV_H
#define SIGSEGV_H

#include <signal.h>
#include <stdbool.h>

/* A fault, and its result. */
struct fault {
	void *addr;
	bool write;
	bool bus;  /* by SIGBUS */
	int error; /* FAULT_FAILED: a negative errno value */
};

enum fault_answer { FAULT_SERVED, FAULT_FOREIGN, FAULT_FAILED };

/* Installs the library's handler, which calls `ours` for each fault. Returns 0 or -errno with a sentence. */
int sigsegv_start(enum fault_answer (*ours)(struct fault *fault));
/* The same for SIGBUS, unless it is installed. */
int sigsegv_start_bus(void);
/* Installs them again if the program has replaced one without sigaction or signal. */
void sigsegv_keep(void);
/* Reads from the kernel which signals have no handler: a program may install handlers by system calls of its own. */
void chain_look(void);
/* Before a fork, in the thread that forks; and in the child, where no other thread holds a lock. */
void sigsegv_fork_prepare(void);
void sigsegv_fork_child(void);
/* For handlers that call the library themselves (umfault): true if the fault was the library's. */
bool sigsegv_serve(int sig, siginfo_t *info, void *context);
/* These do nothing: debuggers stop at them. After the first, faults are part of normal work, and after the second those by
 * SIGBUS, too; the third is called before an unhandled fault happens again, to end the process. */
void ummap_debug_begin(void);
void ummap_debug_begin_bus(void);
void ummap_debug_crash(void);

#endif
