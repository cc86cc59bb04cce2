/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A load that storage fails has no way to say so but SIGBUS. A handler leaves the copy that this thread is just making; every
 * other SIGBUS goes to who had it before. A program that installs a handler of its own later gets all of them, as it would
 * with mmap(2).
 */
#include "iocache/guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

struct guard {
	sigjmp_buf out;
	const char *from, *to;
};

static _Thread_local struct guard *volatile current __attribute__((tls_model("initial-exec")));
static struct sigaction former;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void pass_on(int signal, siginfo_t *info, void *context)
{
	if (former.sa_flags & SA_SIGINFO) {
		former.sa_sigaction(signal, info, context);
	} else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
		former.sa_handler(signal);
	} else {
		/* It comes again when this returns, and ends the process. */
		sigaction(signal, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
	}
}

static void handle(int signal, siginfo_t *info, void *context)
{
	struct guard *g = current;

	if (g && (const char *)info->si_addr >= g->from && (const char *)info->si_addr < g->to) {
		current = NULL;
		siglongjmp(g->out, 1);
	}
	pass_on(signal, info, context);
}

static void install(void)
{
	struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigaction(SIGBUS, &action, &former);
}

void guard_begin(void)
{
	pthread_once(&once, install);
}

/* The handler was left without what ends one. */
static void unblock(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGBUS);
	sigaddset(&set, SIGSEGV);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

bool guard_copy(void *to, const void *from, const char *mapped, size_t len)
{
	struct guard guard = { .from = mapped, .to = mapped + len };

	if (sigsetjmp(guard.out, 0)) {
		unblock();
		return false;
	}
	/* Nothing of the copy is made before the handler can know, or after. */
	current = &guard;
	atomic_signal_fence(memory_order_seq_cst);
	memcpy(to, from, len);
	atomic_signal_fence(memory_order_seq_cst);
	current = NULL;
	return true;
}
