/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's SIGSEGV: ours in front, the application's behind it for all that is not ours. */
#ifndef CHAIN_H
#define CHAIN_H

#include <signal.h>
#include <stdbool.h>

/* What a fault was. */
struct chain_fault {
	void *addr;
	bool write;
};

enum chain_answer { CHAIN_SERVED, CHAIN_FOREIGN, CHAIN_FAILED };

/* Puts ours in front; ours answers for each fault. Returns 0 or -errno with a sentence. */
int chain_start(enum chain_answer (*ours)(const struct chain_fault *fault));
/* Puts ours in front again if somebody has gone around sigaction and signal. */
void chain_keep(void);
/* Looks which signals nobody handles: a program may have its own way of installing handlers. */
void chain_look(void);
/* Before a fork, in the thread that forks; and in the child, where nobody else holds a lock. */
void chain_fork_prepare(void);
void chain_fork_child(void);
/* For handlers that chain by themselves: true if the fault was ours. */
bool chain_serve(siginfo_t *info, void *context);
/* These do nothing: debuggers stop at them. Faults are ordinary from the first on; the second comes before one that
 * nobody handles is let happen again, to end the process. */
void ummap_debug_begin(void);
void ummap_debug_crash(void);

#endif
