/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library preloaded into a program that is not linked with it. The program's handler of SIGSEGV
 * gets no faults of mappings and all others, whichever call of the C library installs it. Each case
 * runs this program again with LD_PRELOAD, in its own process.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ummap.h"

/* The deprecated functions are the subject of this test. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define SEG ((size_t)16 * 1024)
#define SIZE (64 * SEG)

#define check(cond) check_at(!!(cond), #cond, __LINE__)

sighandler_t bsd_signal(int sig, sighandler_t handler);
sighandler_t sysv_signal(int sig, sighandler_t handler);
sighandler_t __sysv_signal(int sig, sighandler_t handler);

static const char *way = "-";
static volatile unsigned char *mapped, *foreign;
static volatile sig_atomic_t seen;
static sigjmp_buf back;

static void check_at(bool ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "%s:%d: %s: failed: %s: %s\n", __FILE__, line, way, what, strerror(errno));
	exit(1);
}

static void on_segv(int sig)
{
	seen += sig == SIGSEGV;
	siglongjmp(back, 1);
}

static void map(void)
{
	__typeof__(ummap) *call = dlsym(RTLD_DEFAULT, "ummap");
	char path[] = "/var/tmp/ummap-test-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);
	void *addr;

	check(call && fd >= 0 && unlink(path) == 0 && ftruncate(fd, SIZE) == 0);
	check(call(SIZE, SEG, PROT_READ | PROT_WRITE, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &addr) == 0);
	mapped = addr;
	foreign = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(foreign != MAP_FAILED);
}

/* Accesses the whole mapping, of which an eighth fits into memory. */
static void touch_mapped(void)
{
	int before = seen;

	if (sigsetjmp(back, 1) == 0) {
		for (size_t at = 0; at < SIZE; at += SEG)
			mapped[at] = (unsigned char)(at / SEG);
		for (size_t at = 0; at < SIZE; at += SEG)
			check(mapped[at] == (unsigned char)(at / SEG));
	}
	check(seen == before);
}

static void touch_foreign(void)
{
	int before = seen;

	if (sigsetjmp(back, 1) == 0)
		*foreign = 1;
	check(seen == before + 1);
}

static sighandler_t by_sigaction(int sig, sighandler_t handler)
{
	struct sigaction act = { .sa_handler = handler }, old;

	return sigaction(sig, &act, &old) == 0 ? old.sa_handler : SIG_ERR;
}

static sighandler_t handler_of(int sig, int *flags)
{
	struct sigaction act;

	check(sigaction(sig, NULL, &act) == 0);
	*flags = act.sa_flags & (SA_RESTART | SA_RESETHAND | SA_NODEFER);
	return act.sa_handler;
}

static const struct {
	const char *name;
	sighandler_t (*install)(int sig, sighandler_t handler);
	int flags;
} ways[] = {
	{ "sigaction", by_sigaction, 0 },
	{ "signal", signal, SA_RESTART },
	{ "bsd_signal", bsd_signal, SA_RESTART },
	{ "ssignal", ssignal, SA_RESTART },
	{ "sysv_signal", sysv_signal, SA_RESETHAND | SA_NODEFER },
	{ "__sysv_signal", __sysv_signal, SA_RESETHAND | SA_NODEFER },
	{ "sigset", sigset, 0 },
};

/* Installs a handler before or after the mapping is made. */
static void install(size_t i, bool before)
{
	int flags;

	if (!before)
		map();
	check(ways[i].install(SIGSEGV, on_segv) == SIG_DFL);
	if (before)
		map();
	touch_mapped();
	check(handler_of(SIGSEGV, &flags) == on_segv && flags == ways[i].flags);
	touch_foreign();
	touch_mapped();
	if (flags & SA_RESETHAND)
		check(handler_of(SIGSEGV, &flags) == SIG_DFL &&
		      ways[i].install(SIGSEGV, on_segv) == SIG_DFL);
	touch_foreign();
	touch_mapped();
	check(ways[i].install(SIGUSR1, on_segv) == SIG_DFL);
	check(handler_of(SIGUSR1, &flags) == on_segv && flags == ways[i].flags);
	check(ways[i].install(SIGUSR1, SIG_IGN) == on_segv &&
	      ways[i].install(SIGUSR1, SIG_DFL) == SIG_IGN);
	check(ways[i].install(SIGKILL, on_segv) == SIG_ERR && errno == EINVAL);
	check(ways[i].install(1000, on_segv) == SIG_ERR && errno == EINVAL);
}

/* Replaces handlers with signal(3), holds and ignores the signal. */
static void change(void)
{
	sigset_t blocked;
	int flags;

	map();
	check(siginterrupt(SIGSEGV, 1) == 0 && signal(SIGSEGV, on_segv) == SIG_DFL);
	check(handler_of(SIGSEGV, &flags) == on_segv && flags == 0);
	check(siginterrupt(SIGSEGV, 0) == 0);
	check(handler_of(SIGSEGV, &flags) == on_segv && flags == SA_RESTART);
	touch_mapped();
	touch_foreign();
	check(siginterrupt(SIGUSR1, 1) == 0 && signal(SIGUSR1, on_segv) == SIG_DFL);
	check(handler_of(SIGUSR1, &flags) == on_segv && flags == 0);
	check(siginterrupt(1000, 1) == -1 && errno == EINVAL);
	check(sigset(SIGUSR1, SIG_HOLD) == on_segv && sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
	check(sigismember(&blocked, SIGUSR1) == 1 && handler_of(SIGUSR1, &flags) == on_segv);
	check(sigset(SIGUSR1, SIG_IGN) == SIG_HOLD && sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
	check(sigismember(&blocked, SIGUSR1) == 0);
	check(sigignore(SIGSEGV) == 0 && raise(SIGSEGV) == 0);
	touch_mapped();
	check(handler_of(SIGSEGV, &flags) == SIG_IGN && sigignore(1000) == -1 && errno == EINVAL);
}

/* Acts like posix_spawn(3) of some libraries: the child, which shares its parent's memory, sets
 * handlers. */
static void vforked(void)
{
	int flags, status;
	pid_t child;

	map();
	check(signal(SIGSEGV, on_segv) == SIG_DFL);
	child = vfork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(0);
	}
	check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	check(handler_of(SIGSEGV, &flags) == on_segv);
	touch_mapped();
	touch_foreign();
}

static void run(const char *name)
{
	way = name;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (strcmp(name, ways[i].name) == 0)
			install(i, false);
		else if (strncmp(name, "early ", 6) == 0 && strcmp(name + 6, ways[i].name) == 0)
			install(i, true);
	}
	if (strcmp(name, "change") == 0)
		change();
	if (strcmp(name, "vfork") == 0)
		vforked();
	check(mapped != NULL);
}

/* Preloads the library that was built together with this program. */
static void preload(void)
{
	char self[PATH_MAX], path[PATH_MAX + 32];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	check(len > 0);
	self[len] = 0;
	*strrchr(self, '/') = 0;
	snprintf(path, sizeof(path), "%s/../libummap.so.0", self);
	check(access(path, R_OK) == 0 && setenv("LD_PRELOAD", path, 1) == 0);
	check(setenv("UMMAP_MEM_LIMIT", "128K", 1) == 0);
}

static void start(char *name)
{
	char *args[] = { "prog_preload", name, NULL };
	pid_t child;
	int status;

	printf("%s\n", name);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		execv("/proc/self/exe", args);
		_exit(126);
	}
	check(child > 0 && waitpid(child, &status, 0) == child);
	way = name;
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
	char name[64];

	if (argc == 2) {
		run(argv[1]);
		return 0;
	}
	check(!dlsym(RTLD_DEFAULT, "ummap"));
	preload();
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		snprintf(name, sizeof(name), "%s", ways[i].name);
		start(name);
		snprintf(name, sizeof(name), "early %s", ways[i].name);
		start(name);
	}
	start("change");
	start("vfork");
	return 0;
}
