/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where accesses are caught by signals, the kernel kills a process that makes one while it has blocked them. Programs block all
 * signals in threads and in handlers that use mappings: of these two, only what the thread believes is kept.
 */
#include "umrun/signals.h"

#include "umrun/next.h"
#include "umrun/region.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/select.h>

#define OURS 2
static const int ours[OURS] = { SIGSEGV, SIGBUS };

typedef int (*change_call)(int how, const sigset_t *set, sigset_t *old);

/* What the thread has blocked of them, as far as it knows. */
static _Thread_local bool blocked[OURS];

const sigset_t *signals_mask(const sigset_t *set, sigset_t *room)
{
	if (!set || region_kernel)
		return set;
	*room = *set;
	for (int i = 0; i < OURS; i++)
		sigdelset(room, ours[i]);
	return room;
}

static void note(int how, const sigset_t *set)
{
	for (int i = 0; i < OURS; i++) {
		bool has = sigismember(set, ours[i]) == 1;

		if (how == SIG_SETMASK)
			blocked[i] = has;
		else if (has)
			blocked[i] = how == SIG_BLOCK;
	}
}

static int change(change_call next, int how, const sigset_t *set, sigset_t *old)
{
	bool before[OURS];
	sigset_t room;
	int result;

	memcpy(before, blocked, sizeof(before));
	result = next(how, how == SIG_UNBLOCK ? set : signals_mask(set, &room), old);
	if (result)
		return result;
	for (int i = 0; old && i < OURS; i++) {
		if (before[i])
			sigaddset(old, ours[i]);
	}
	if (set)
		note(how, set);
	return 0;
}

PUBLIC int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	change_call next = (change_call)NEXT("sigprocmask");

	return FROM_LIBRARY() || region_kernel ? next(how, set, old) : change(next, how, set, old);
}

PUBLIC int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	change_call next = (change_call)NEXT("pthread_sigmask");

	return FROM_LIBRARY() || region_kernel ? next(how, set, old) : change(next, how, set, old);
}

static int change_one(int how, int sig)
{
	sigset_t set;

	sigemptyset(&set);
	return sigaddset(&set, sig) < 0 ? -1 : sigprocmask(how, &set, NULL);
}

PUBLIC int sighold(int sig)
{
	return change_one(SIG_BLOCK, sig);
}

PUBLIC int sigrelse(int sig)
{
	return change_one(SIG_UNBLOCK, sig);
}

/* ---- Handlers use mappings, too. ---- */

PUBLIC int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	int (*next)(int, const struct sigaction *, struct sigaction *) = NEXT("sigaction");
	struct sigaction mine;

	if (!act || FROM_LIBRARY() || region_kernel)
		return next(sig, act, old);
	mine = *act;
	signals_mask(&act->sa_mask, &mine.sa_mask);
	return next(sig, &mine, old);
}

PUBLIC int sigsuspend(const sigset_t *set)
{
	sigset_t room;

	return ((int (*)(const sigset_t *))NEXT("sigsuspend"))(signals_mask(set, &room));
}

PUBLIC int pselect(int count, fd_set *in, fd_set *out, fd_set *errors, const struct timespec *timeout, const sigset_t *mask)
{
	int (*next)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *) = NEXT("pselect");
	sigset_t room;

	return next(count, in, out, errors, timeout, signals_mask(mask, &room));
}

PUBLIC int pthread_attr_setsigmask_np(pthread_attr_t *attr, const sigset_t *mask)
{
	sigset_t room;

	return ((int (*)(pthread_attr_t *, const sigset_t *))NEXT("pthread_attr_setsigmask_np"))(attr, signals_mask(mask, &room));
}

void signals_begin(void)
{
	change_call next = (change_call)NEXT("pthread_sigmask");
	sigset_t set, old;

	sigemptyset(&set);
	for (int i = 0; i < OURS; i++)
		sigaddset(&set, ours[i]);
	if (next(SIG_UNBLOCK, &set, &old) == 0)
		note(SIG_SETMASK, &old);
}
