/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's SIGSEGV: ours in front, the application's behind it for all that is not ours. */
#ifndef SIGSEGV_H
#define SIGSEGV_H

#include <signal.h>
#include <stdbool.h>

/* What a fault was. */
struct fault {
	void *addr;
	bool write;
};

enum fault_answer { FAULT_SERVED, FAULT_FOREIGN, FAULT_FAILED };

/* Puts ours in front; ours answers for each fault. Returns 0 or -errno with a sentence. */
int sigsegv_start(enum fault_answer (*ours)(const struct fault *fault));
/* Puts ours in front again if somebody has gone around sigaction and signal. */
void sigsegv_keep(void);
/* Looks which signals nobody handles: a program may have its own way of installing handlers. */
void chain_look(void);
/* Before a fork, in the thread that forks; and in the child, where nobody else holds a lock. */
void sigsegv_fork_prepare(void);
void sigsegv_fork_child(void);
/* For handlers that chain by themselves: true if the fault was ours. */
bool sigsegv_serve(siginfo_t *info, void *context);
/* These do nothing: debuggers stop at them. Faults are ordinary from the first on; the second comes before one that
 * nobody handles is let happen again, to end the process. */
void ummap_debug_begin(void);
void ummap_debug_crash(void);

#endif
