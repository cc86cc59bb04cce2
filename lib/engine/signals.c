/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The C library's calls that install a handler, with its semantics, but based on ummap_sigaction,
 * so that the library's handler of SIGSEGV stays first whichever call a program uses. They have no
 * symbol version, so that they also replace those of the C library in programs and libraries that
 * were not linked with this library. The libraries for MPI windows have a copy each, because a
 * preloaded library comes before the C library, but its dependencies do not. No lock: the set of
 * signals that interrupt is one atomic word.
 */
#include "engine/signals.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Declared by <signal.h> for some standards only, or not at all. */
PUBLIC sighandler_t bsd_signal(int sig, sighandler_t handler);
PUBLIC sighandler_t ssignal(int sig, sighandler_t handler);
PUBLIC sighandler_t sysv_signal(int sig, sighandler_t handler);
PUBLIC sighandler_t __sysv_signal(int sig, sighandler_t handler);

/* Bit sig - 1: siginterrupt(3) has requested that the signal interrupts system calls. */
static _Atomic uint64_t interrupting;

static sighandler_t set_handler(int sig, sighandler_t handler, int flags)
{
	struct sigaction act, old;

	memset(&act, 0, sizeof(act));
	act.sa_handler = handler;
	act.sa_flags = flags;
	if (handler == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return ummap_sigaction(sig, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

PUBLIC int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return ummap_sigaction(sig, act, old);
}

/* Has BSD semantics: the handler stays, and system calls continue. */
PUBLIC sighandler_t signal(int sig, sighandler_t handler)
{
	bool interrupts = sig >= 1 && sig <= 64 && (interrupting >> (sig - 1) & 1);

	return set_handler(sig, handler, interrupts ? 0 : SA_RESTART);
}

PUBLIC sighandler_t bsd_signal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

PUBLIC sighandler_t ssignal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

/* Has System V semantics: the handler runs once, and the signal is not blocked. Strict C and POSIX
 * programs call it as signal(3). */
PUBLIC sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return set_handler(sig, handler, SA_RESETHAND | SA_NODEFER);
}

PUBLIC sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return __sysv_signal(sig, handler);
}

PUBLIC sighandler_t sigset(int sig, sighandler_t handler)
{
	bool hold = handler == SIG_HOLD;
	struct sigaction act;
	sigset_t set, before;

	sigemptyset(&set);
	if (sigaddset(&set, sig) < 0)
		return SIG_ERR;
	if (hold ? ummap_sigaction(sig, NULL, &act) < 0 :
		   (act.sa_handler = set_handler(sig, handler, 0)) == SIG_ERR)
		return SIG_ERR;
	if (sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, &before) < 0)
		return SIG_ERR;
	return sigismember(&before, sig) ? SIG_HOLD : act.sa_handler;
}

PUBLIC int sigignore(int sig)
{
	return set_handler(sig, SIG_IGN, 0) == SIG_ERR ? -1 : 0;
}

PUBLIC int siginterrupt(int sig, int interrupt)
{
	struct sigaction act;

	if (ummap_sigaction(sig, NULL, &act) < 0)
		return -1;
	if (interrupt) {
		atomic_fetch_or(&interrupting, (uint64_t)1 << (sig - 1));
		act.sa_flags &= ~SA_RESTART;
	} else {
		atomic_fetch_and(&interrupting, ~((uint64_t)1 << (sig - 1)));
		act.sa_flags |= SA_RESTART;
	}
	return ummap_sigaction(sig, &act, NULL);
}
