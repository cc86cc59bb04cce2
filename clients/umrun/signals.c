/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If signals report accesses, the kernel kills a process that accesses a segment while the signal
 * is blocked. Programs block all signals in threads and handlers that use mappings. SIGSEGV and
 * SIGBUS are therefore never blocked; a thread is told that they are if it has blocked them.
 */
#include "umrun/signals.h"

#include "umrun/list.h"
#include "umrun/next_calls.h"

#define LIBRARY_SIGNALS 2
static const int library_signals[LIBRARY_SIGNALS] = { SIGSEGV, SIGBUS };

/* Signals that the thread believes to be blocked. */
static _Thread_local bool is_blocked[LIBRARY_SIGNALS];

const sigset_t *signals_mask(const sigset_t *set, sigset_t *room)
{
	if (!set || region_kernel_can_access)
		return set;
	*room = *set;
	for (int i = 0; i < LIBRARY_SIGNALS; i++)
		sigdelset(room, library_signals[i]);
	return room;
}

static void note_blocked(int how, const sigset_t *set)
{
	for (int i = 0; i < LIBRARY_SIGNALS; i++) {
		bool has = sigismember(set, library_signals[i]) == 1;

		if (how == SIG_SETMASK)
			is_blocked[i] = has;
		else if (has)
			is_blocked[i] = how == SIG_BLOCK;
	}
}

int change_mask(mask_call next, int how, const sigset_t *set, sigset_t *old)
{
	bool before[LIBRARY_SIGNALS];
	sigset_t room;
	int result;

	memcpy(before, is_blocked, sizeof(before));
	result = next(how, how == SIG_UNBLOCK ? set : signals_mask(set, &room), old);
	if (result)
		return result;
	for (int i = 0; old && i < LIBRARY_SIGNALS; i++) {
		if (before[i])
			sigaddset(old, library_signals[i]);
	}
	if (set)
		note_blocked(how, set);
	return 0;
}

int change_one_signal(int how, int sig)
{
	sigset_t set;

	sigemptyset(&set);
	return sigaddset(&set, sig) < 0 ? -1 : sigprocmask(how, &set, NULL);
}

/* A handler may use mappings too. */
int take_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction changed = *act;

	signals_mask(&act->sa_mask, &changed.sa_mask);
	return next_sigaction(sig, &changed, old);
}

void signals_require_pins(void)
{
	sigset_t set, old;

	region_kernel_can_access = false;
	sigemptyset(&set);
	for (int i = 0; i < LIBRARY_SIGNALS; i++)
		sigaddset(&set, library_signals[i]);
	if (next_pthread_sigmask(SIG_UNBLOCK, &set, &old) == 0)
		note_blocked(SIG_SETMASK, &old);
}
