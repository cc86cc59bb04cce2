/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library and the application's own handler of SIGSEGV: which faults the handler gets, and with
 * which flags and mask, whenever and however it was installed. Each case runs in its own process.
 */
#include <sys/ptrace.h>

#include "common.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)
#define BUDGET (SIZE / 8)

static uint8_t *mapped;
static uint8_t *foreign;  /* a page without access rights, which is no mapping */

/* Values that the handlers have recorded. */
static volatile sig_atomic_t seen, depth, served;
static siginfo_t volatile last_info;
static sigset_t last_mask;
static char *volatile last_stack;

static void prepare(void)
{
	foreign = mmap(NULL, 4 * KIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(foreign != MAP_FAILED);
	mapped = map_file(temp_file(SIZE), SIZE, SEG, READ_WRITE, 0);
}

/* Causes several faults of the mapping, with evictions, which the application must not notice. */
static void touch_mapped(void)
{
	int before = seen;

	for (size_t at = 0; at < SIZE; at += SEG) {
		mapped[at] = at / SEG + 1;
		check(mapped[(at + SIZE / 2) % SIZE] < 255);
	}
	for (size_t at = 0; at < SIZE; at += SEG)
		check(mapped[at] == at / SEG + 1);
	check(seen == before, "a fault of ours reached the application");
}

static void on_segv(int sig, siginfo_t *info, void *context)
{
	char here;

	(void)context;
	seen += sig == SIGSEGV;
	last_info = *info;
	last_stack = &here;
	sigprocmask(SIG_BLOCK, NULL, &last_mask);
	siglongjmp(bus_jump, 1);
}

static void on_segv_plain(int sig)
{
	seen += sig == SIGSEGV;
	siglongjmp(bus_jump, 1);
}

/* If on_segv jumps, try_store and try_load return false. */
static void touch_foreign(void)
{
	int before = seen;
	uint64_t value;

	check(!try_store(foreign + 40, 1));
	check(seen == before + 1 && last_info.si_addr == foreign + 40);
	check(last_info.si_signo == SIGSEGV && last_info.si_code == SEGV_ACCERR, "%d",
	      last_info.si_code);
	check(!try_load(foreign + 80, &value));
	check(seen == before + 2 && last_info.si_addr == foreign + 80);
}

static struct sigaction own_action(int flags)
{
	struct sigaction action = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | flags };

	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR1);
	return action;
}

/* Checks the mask during the last on_segv: the signals of own_action, and SIGSEGV unless the
 * handler had SA_NODEFER. */
static void check_mask(bool segv)
{
#ifndef __SANITIZE_THREAD__  /* TSan runs handlers with all signals blocked */
	check(sigismember(&last_mask, SIGUSR1) == 1 && sigismember(&last_mask, SIGUSR2) == 0);
	check(sigismember(&last_mask, SIGSEGV) == segv);
#else
	(void)segv;
#endif
}

static void check_reported(void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction old;

	check(sigaction(SIGSEGV, NULL, &old) == 0);
	check(old.sa_sigaction == handler && (old.sa_flags & ~0x04000000) == (SA_SIGINFO | flags),
	      "flags %#x", old.sa_flags);
	check(sigismember(&old.sa_mask, SIGUSR1) == 1 && sigismember(&old.sa_mask, SIGUSR2) == 0);
}

/* ---- Handlers installed before and after the first mapping ---- */

static void handler_from_before(void *unused)
{
	struct sigaction action = own_action(0);

	(void)unused;
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	prepare();
	touch_mapped();
	touch_foreign();
	check_mask(true);
	touch_mapped();
	check_reported(on_segv, 0);
}

static void handler_from_later(void *unused)
{
	struct sigaction action = own_action(SA_RESTART), old;

	(void)unused;
	prepare();
	touch_mapped();
	check(sigaction(SIGSEGV, &action, &old) == 0);
	check(old.sa_handler == SIG_DFL, "the application had none");
	touch_mapped();
	touch_foreign();
	check_mask(true);
	check_reported(on_segv, SA_RESTART);
	touch_mapped();
	action = own_action(SA_NODEFER);
	check(sigaction(SIGSEGV, &action, &old) == 0);
	check(old.sa_sigaction == on_segv && old.sa_flags & SA_RESTART);
	touch_foreign();
	check_mask(false);
	check(umunmap(mapped, 1) == 0);
	touch_foreign();
	check_reported(on_segv, SA_NODEFER);
}

static void handler_by_signal(void *unused)
{
	int before;

	(void)unused;
	prepare();
	check(signal(SIGSEGV, on_segv_plain) == SIG_DFL);
	touch_mapped();
	for (int i = 0; i < 3; i++) {
		before = seen;
		check(!try_store(foreign, 1) && seen == before + 1);
		touch_mapped();
	}
	check(signal(SIGSEGV, SIG_IGN) == on_segv_plain);
	check(signal(SIGSEGV, SIG_DFL) == SIG_IGN);
	touch_mapped();
	check(signal(SIGUSR1, on_segv_plain) == SIG_DFL,
	      "the library does not change other signals");
	check(signal(SIGUSR1, SIG_DFL) == on_segv_plain);
	check(signal(SIGKILL, on_segv_plain) == SIG_ERR && errno == EINVAL);
	check(sigaction(10000, NULL, NULL) == -1 && errno == EINVAL);
}

/* ---- Flags ---- */

static void reset_hand(void *unused)
{
	struct sigaction action = own_action(SA_RESETHAND);

	(void)unused;
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	prepare();
	touch_mapped();
	check(!try_store(foreign, 1) && seen == 1);
	touch_mapped();
	check(sigaction(SIGSEGV, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
	try_store(foreign, 1);  /* the second fault has the default action */
	_exit(1);
}

static void on_segv_nested(int sig, siginfo_t *info, void *context)
{
	if (++depth < 3)
		*(volatile uint8_t *)foreign = 1;
	on_segv(sig, info, context);
}

static void no_defer(void *flags)
{
	struct sigaction action = own_action(flags ? SA_NODEFER : 0);

	action.sa_sigaction = on_segv_nested;
	prepare();
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	check(!try_store(foreign, 1));
	check(depth == 3);
	touch_mapped();
}

static char alternate[256 * KIB];

static void use_alternate(void)
{
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };

	check(sigaltstack(&stack, NULL) == 0);
}

static bool on_alternate(void)
{
	return last_stack >= alternate && last_stack < alternate + sizeof(alternate);
}

static void on_stack(void *unused)
{
	struct sigaction action = own_action(SA_ONSTACK);

	(void)unused;
	use_alternate();
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	prepare();
	touch_mapped();
	touch_foreign();
	check(on_alternate());
	touch_mapped();
}

__attribute__((noinline)) static unsigned recurse(volatile char *up)
{
	volatile char frame[1024];

	frame[0] = up[0];
	return frame[0] ? 0 : recurse(frame) + frame[0];  /* frame[0] stays 0, so it never ends */
}

static void *overflow(void *unused)
{
	volatile char first = 0;

	(void)unused;
	use_alternate();
	if (sigsetjmp(bus_jump, 1) == 0)
		recurse(&first);
	return NULL;
}

/* Only a handler on the alternate stack can handle an overflow of the stack. */
static void stack_overflow(void *unused)
{
	struct sigaction action = own_action(SA_ONSTACK);
	pthread_attr_t attr;
	pthread_t thread;

	(void)unused;
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	prepare();
	check(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 256 * KIB) == 0);
	check(pthread_create(&thread, &attr, overflow, NULL) == 0);
	check(pthread_join(thread, NULL) == 0);
	check(seen == 1 && on_alternate());
	touch_mapped();
}

/* ---- No handler ---- */

static void die_by_default(void *unused)
{
	(void)unused;
	prepare();
	touch_mapped();
	*(volatile uint8_t *)(foreign + 123) = 1;
}

static void die_ignoring(void *unused)
{
	(void)unused;
	check(signal(SIGSEGV, SIG_IGN) == SIG_DFL);
	prepare();
	touch_mapped();
	check(raise(SIGSEGV) == 0);  /* a signal that is sent is ignored */
	check(kill(getpid(), SIGSEGV) == 0);
	touch_mapped();
	*(volatile uint8_t *)foreign = 1;  /* the kernel does not ignore the signal of a fault */
}

static void die_by_kill(void *unused)
{
	(void)unused;
	prepare();
	touch_mapped();
	check(kill(getpid(), SIGSEGV) == 0);
	pause_ms(100);
}

static void sent_from_outside(void *unused)
{
	struct sigaction action = own_action(0);

	(void)unused;
	prepare();
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	touch_mapped();
	if (sigsetjmp(bus_jump, 1) == 0) {
		kill(getpid(), SIGSEGV);
		pause_ms(1000);
	}
	check(seen == 1 && last_info.si_code == SI_USER && last_info.si_pid == getpid());
	touch_mapped();
}

static void be_traced(void *unused)
{
	check(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	die_by_default(unused);
}

/* A debugger sees the processor's own SIGSEGV with the address of the access. */
static void default_at_the_true_instruction(void *unused)
{
	pid_t child = start_child(be_traced, NULL);
	siginfo_t last = { 0 };
	int status;

	(void)unused;
	while ((status = wait_child(child)), WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == SIGSEGV)
			check(ptrace(PTRACE_GETSIGINFO, child, NULL, &last) == 0);
		check(ptrace(PTRACE_CONT, child, NULL, (void *)(uintptr_t)WSTOPSIG(status)) == 0);
	}
	check_killed(status, SIGSEGV);
	check(last.si_code == SEGV_ACCERR && ((uintptr_t)last.si_addr & 4095) == 123,
	      "code %d at %p", last.si_code, last.si_addr);
}

/* ---- Handlers that the library does not see being installed ---- */

struct kernel_action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

/* Installs a handler with a system call of the program's own. */
static void install_raw(void (*handler)(int, siginfo_t *, void *))
{
	struct kernel_action action;

	check(syscall(SYS_rt_sigaction, SIGSEGV, NULL, &action, 8) == 0);
	check(action.handler != handler);
	action.handler = handler;
	action.flags |= SA_SIGINFO;
	check(syscall(SYS_rt_sigaction, SIGSEGV, &action, NULL, 8) == 0);
}

static void behind_its_back(void *unused)
{
	(void)unused;
	prepare();
	touch_mapped();
	for (int i = 0; i < 3; i++) {
		install_raw(on_segv);
		check(umsync(mapped, 1) == 0);  /* each call detects the change */
		touch_mapped();
		touch_foreign();
	}
}

static void noticed_by_the_background_thread(void *unused)
{
	struct kernel_action action;
	double end;

	(void)unused;
	prepare();
	touch_mapped();
	install_raw(on_segv);
	end = now() + 60;
	do {
		pause_ms(50);
		check(syscall(SYS_rt_sigaction, SIGSEGV, NULL, &action, 8) == 0);
	} while (action.handler == on_segv && now() < end);
	check(action.handler != on_segv);
	touch_mapped();
	touch_foreign();
}

static void on_segv_chaining(int sig, siginfo_t *info, void *context)
{
	if (umfault(sig, info, context))
		served++;
	else
		on_segv(sig, info, context);
}

static void chaining_by_itself(void *unused)
{
	siginfo_t info = { .si_signo = SIGUSR1 };

	(void)unused;
	set_env("UMMAP_ENGINE", "segv"); /* the engine whose faults are signals */
	prepare();
	for (int tries = 0; served == 0 && tries < 10; tries++) {
		check(umsync(mapped, 1) == 0);
		install_raw(on_segv_chaining);
		mapped[SEG / 2] =
			1; /* repeat if the library's thread has detected the change already */
	}
	check(served > 0 && seen == 0);
	touch_mapped();
	touch_foreign();
	check(umsync(mapped, 1) == 0);  /* the library's handler is the first one again */
	touch_mapped();
	touch_foreign();
	check(umfault(SIGUSR1, &info, NULL) == 0);
}

/* ---- Table of tests ---- */

struct test {
	const char *name;
	void (*body)(void *);
	void *arg;
	int killed_by;  /* signal that ends the process; 0: it exits */
};

int main(void)
{
	static const struct test tests[] = {
		{ "a handler from before", handler_from_before, NULL, 0 },
		{ "a handler from later", handler_from_later, NULL, 0 },
		{ "a handler by signal()", handler_by_signal, NULL, 0 },
		{ "SA_RESETHAND", reset_hand, NULL, SIGSEGV },
#ifndef __SANITIZE_THREAD__  /* TSan runs handlers with all signals blocked, whatever the flags */
		{ "SA_NODEFER", no_defer, alternate, 0 },
#endif
		{ "no SA_NODEFER", no_defer, NULL, SIGSEGV },
		{ "SA_ONSTACK", on_stack, NULL, 0 },
		{ "a stack overflow", stack_overflow, NULL, 0 },
		{ "SIG_DFL", die_by_default, NULL, SIGSEGV },
		{ "SIG_IGN", die_ignoring, NULL, SIGSEGV },
		{ "SIG_DFL and kill", die_by_kill, NULL, SIGSEGV },
		{ "a handler and kill", sent_from_outside, NULL, 0 },
		{ "SIG_DFL under a debugger", default_at_the_true_instruction, NULL, 0 },
		{ "behind its back", behind_its_back, NULL, 0 },
		{ "behind its back, no call", noticed_by_the_background_thread, NULL, 0 },
		{ "umfault", chaining_by_itself, NULL, 0 },
	};

	set_budget(BUDGET);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		int status = run_child(tests[i].body, tests[i].arg);

		printf("%s\n", tests[i].name);
		fflush(stdout);
		if (tests[i].killed_by)
			check_killed(status, tests[i].killed_by);
		else
			check_exits(status, 0);
	}
	return 0;
}
