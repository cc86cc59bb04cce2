/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The result of a check. The first thread that reports one decides. No function here allocates or
 * takes a lock, because the driver's calls may run, and fail, in a signal handler.
 */
#include "conform.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct verdict *verdict;
int verdict_fd = -1;

static _Noreturn void decide(enum outcome outcome, const char *format, va_list args)
{
	int none = OUTCOME_NONE;
	char sentence[sizeof(verdict->sentence)];

	vsnprintf(sentence, sizeof(sentence), format, args);
	if (atomic_compare_exchange_strong(&verdict->outcome, &none, outcome))
		memcpy(verdict->sentence, sentence, sizeof(sentence));
	else
		usleep(100000); /* the thread that has decided is about to end the process */
	_exit(0);
}

void expect(bool ok, const char *format, ...)
{
	va_list args;

	if (ok)
		return;
	va_start(args, format);
	decide(OUTCOME_FAILED, format, args);
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	decide(OUTCOME_SKIPPED, format, args);
}

void doing(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(verdict->doing, sizeof(verdict->doing), format, args);
	va_end(args);
}

pid_t fork_child(void)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	expect(child >= 0, "fork: %m");
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

void wait_for(pid_t child)
{
	int status;

	expect(waitpid(child, &status, 0) == child, "waitpid: %m");
	expect(WIFEXITED(status), "%s: the child died of signal %d (%s)", verdict->doing,
	       WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (atomic_load(&verdict->outcome) == OUTCOME_FAILED)
		_exit(0);
}

/* The function exists since glibc 2.32. Weak: other C libraries do not have it. */
extern const char *strerrorname_np(int err) __attribute__((weak));

const char *error_name(int err)
{
	static _Thread_local char text[96];
	const char *name = err < 0 && strerrorname_np ? strerrorname_np(-err) : NULL;

	if (name)
		snprintf(text, sizeof(text), "%s (%s)", name, strerror(-err));
	else
		snprintf(text, sizeof(text), "%d", err);
	return text;
}
