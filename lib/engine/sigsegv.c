/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Owns the disposition of SIGSEGV. The calls that install handlers (signals.c) keep the application's in
 * `theirs` and report it as if it were installed; a fault that is not ours reaches it with its flags and
 * mask. A failed load becomes a SIGBUS that is pending when the handler returns to the instruction.
 * It also keeps in mind which signals nobody handles: those whose default action is to end the process may do so while
 * a thread is at work here, and all others wait.
 * One lock, around `theirs` and what is known of other signals, with the signals of guard_mask blocked.
 */
#include "engine/sigsegv.h"

#include "base/log.h"
#include "engine/signals.h"
#include "engine/stack.h"
#include "base/sys.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* What our sigaction hides: glibc has another name for it, elsewhere it is the next one of that name. */
#ifdef __GLIBC__
extern int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);
#else
static int __sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	/* First asked for by sigsegv_start or a program's own call, not by a handler. */
	static int (*_Atomic next)(int sig, const struct sigaction *act, struct sigaction *old);

	if (!next)
		next = (__typeof__(&sigaction))dlsym(RTLD_NEXT, "sigaction");
	return next(sig, act, old);
}
#endif

static enum fault_answer (*answer)(const struct fault *fault);
static struct sigaction theirs;
static _Thread_local struct sigaction at_fork __attribute__((tls_model("initial-exec")));
static _Atomic uint32_t lock;
static _Atomic bool started;
static pid_t process;

static void on_fault(int sig, siginfo_t *info, void *context);

/* What the CPU was doing: a jump into a mapping is nothing that we can serve. */
enum access { LOAD, STORE, FETCH };

static enum access access_of(const ucontext_t *context)
{
#if defined(__x86_64__)
	uint64_t error = (uint64_t)context->uc_mcontext.gregs[REG_ERR];

	return error & 16 ? FETCH : error & 2 ? STORE : LOAD;
#elif defined(__aarch64__)
	/* The kernel appends tagged records; the one with the syndrome has the class of the exception from bit 26
	 * on, and for a data abort the write bit at 6. */
	const uint8_t *p = context->uc_mcontext.__reserved;
	struct { uint32_t magic, size; uint64_t esr; } record;

	for (size_t at = 0; at + sizeof(record) <= sizeof(context->uc_mcontext.__reserved);) {
		memcpy(&record, p + at, sizeof(record));
		if (record.magic == 0x45535201)
			return (record.esr >> 26 & 0x3e) == 0x20 ? FETCH : record.esr & (1 << 6) ? STORE : LOAD;
		if (record.magic == 0 || record.size == 0)
			break;
		at += record.size;
	}
	return LOAD;
#else
#error "the kind of a fault is known for x86-64 and AArch64 only"
#endif
}

/* Sends this thread a signal with a kernel's siginfo: allowed to oneself. */
static void send_self(int sig, siginfo_t *info)
{
	syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), sig, info);
}

/* A synchronous signal that is blocked or ignored kills: so the kernel does it, so do we. */
static void raise_bus(void *addr, ucontext_t *context)
{
	struct sigaction act;
	siginfo_t info;
	sigset_t bus;

	memset(&info, 0, sizeof(info));
	info.si_signo = SIGBUS;
	info.si_code = BUS_ADRERR;
	info.si_addr = addr;
	__sigaction(SIGBUS, NULL, &act);
	if (sigismember(&context->uc_sigmask, SIGBUS) || act.sa_handler == SIG_IGN) {
		memset(&act, 0, sizeof(act));
		act.sa_handler = SIG_DFL;
		__sigaction(SIGBUS, &act, NULL);
		sigdelset(&context->uc_sigmask, SIGBUS);
	}
	/* Blocked until the handler has returned: the signal must meet the instruction, not us. */
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &bus, NULL);
	send_self(SIGBUS, &info);
}

/* A fault on its way to another stack. */
struct serving {
	struct fault fault;
	ucontext_t *context;
	bool served;
};

static void serve(void *arg)
{
	struct serving *s = arg;
	enum fault_answer what = answer(&s->fault);

	if (what == FAULT_FAILED)
		raise_bus(s->fault.addr, s->context);
	s->served = what != FAULT_FOREIGN;
}

bool sigsegv_serve(siginfo_t *info, void *context)
{
	enum access access = access_of(context);
	struct serving s = { { info->si_addr, access == STORE }, context, false };

	/* Sent by kill(2) or the like, or before we began: nobody touched anything. */
	if (info->si_code <= 0 || !started || access == FETCH)
		return false;
	stack_call(&s.context->uc_stack, serve, &s);
	return s.served;
}

/* Where a debugger's breakpoints go (tools/ummap.gdb): from now on faults are ordinary; the next one ends the process. */
#define FOR_DEBUGGERS __attribute__((visibility("default"), noinline))

FOR_DEBUGGERS void ummap_debug_begin(void)
{
	__asm__ volatile("" ::: "memory");
}

FOR_DEBUGGERS void ummap_debug_crash(void)
{
	__asm__ volatile("" ::: "memory");
}

/* The default action has to happen at the instruction, as if we had never been there. */
static void die_by_default(siginfo_t *info)
{
	struct sigaction act;

	ummap_debug_crash();
	memset(&act, 0, sizeof(act));
	act.sa_handler = SIG_DFL;
	__sigaction(SIGSEGV, &act, NULL);
	started = false;
	if (info->si_code <= 0)
		send_self(SIGSEGV, info);
}

static void pass_on(int sig, siginfo_t *info, ucontext_t *context)
{
	struct sigaction act;
	sigset_t mask;

	futex_lock(&lock);
	act = theirs;
	if ((act.sa_flags & SA_RESETHAND) && act.sa_handler != SIG_IGN)
		theirs.sa_handler = SIG_DFL;
	futex_unlock(&lock);
	if (act.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN) {
		die_by_default(info);
		return;
	}
	mask = context->uc_sigmask;
	for (int i = 1; i < NSIG; i++) {
		if (sigismember(&act.sa_mask, i) == 1)
			sigaddset(&mask, i);
	}
	if (!(act.sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(sig, info, context);
	else
		act.sa_handler(sig);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno, cancel;
	bool served;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	served = sigsegv_serve(info, context);
	errno = saved;
	cancel_restore(cancel);
	if (!served)
		pass_on(sig, info, context);
	errno = saved;
}

/* Under the lock. */
static int install(void)
{
	uint64_t mask = guard_mask();
	struct sigaction act;

	memset(&act, 0, sizeof(act));
	act.sa_sigaction = on_fault;
	/* NODEFER: a driver may itself touch memory of another mapping. */
	act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;
	memcpy(&act.sa_mask, &mask, sizeof(mask));
	return __sigaction(SIGSEGV, &act, NULL) < 0 ? -errno : 0;
}

static bool is_ours(const struct sigaction *act)
{
	return (act->sa_flags & SA_SIGINFO) && act->sa_sigaction == on_fault;
}

/* Whether its default action is to end or to stop the process. Not those that a system call raises in the thread that
 * makes it, where drivers rely on the error that it then returns; nor the C library's own. */
static bool is_deadly(int sig)
{
	static const int some[] = { SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGSTKFLT, SIGTSTP, SIGXCPU,
				    SIGVTALRM, SIGPROF, SIGPOLL, SIGPWR };

	for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
		if (sig == some[i])
			return true;
	}
	return sig >= SIGRTMIN && sig <= SIGRTMAX;
}

/* Under the lock: the mask of our handler is what it now has to be. If somebody has replaced it, sigsegv_keep will see. */
static void renew(void)
{
	struct sigaction act;

	if (__sigaction(SIGSEGV, NULL, &act) == 0 && is_ours(&act))
		install();
}

/* Under the lock: true if the signal may end the process now and could not, or the other way round. */
static bool look_at(int sig)
{
	struct sigaction act;

	return is_deadly(sig) && __sigaction(sig, NULL, &act) == 0 && guard_let(sig, act.sa_handler == SIG_DFL);
}

void chain_look(void)
{
	bool changed = false;

	if (!started)
		return;
	futex_lock(&lock);
	for (int sig = 1; sig < NSIG; sig++)
		changed |= look_at(sig);
	if (changed)
		renew();
	futex_unlock(&lock);
}

int sigsegv_start(enum fault_answer (*ours)(const struct fault *fault))
{
	int err;

	answer = ours;
	if (__sigaction(SIGSEGV, NULL, &theirs) < 0)
		return fail(errno, "the handler of SIGSEGV cannot be read");
	err = install();
	if (err)
		return fail(-err, "no handler of SIGSEGV can be installed");
	process = getpid();
	started = true;
	chain_look();
	ummap_debug_begin();
	return 0;
}

void sigsegv_keep(void)
{
	static _Atomic bool told;
	struct sigaction act;

	if (!started || __sigaction(SIGSEGV, NULL, &act) < 0 || is_ours(&act))
		return;
	futex_lock(&lock);
	theirs = act;
	install();
	futex_unlock(&lock);
	if (!atomic_exchange(&told, true))
		log_line(LOG_WARN, "sigsegv", "somebody replaced the SIGSEGV handler behind sigaction(3); ours is "
			 "in front again, theirs gets what is not ours");
}

/* fork(2) copies memory while other threads go on: what is being changed, a child would find half changed. */
void sigsegv_fork_prepare(void)
{
	futex_lock(&lock);
	at_fork = theirs;
	futex_unlock(&lock);
}

void sigsegv_fork_child(void)
{
	theirs = at_fork;
	process = getpid();
	lock = 0;
}

/* A signal that may end the process. */
static int set_deadly(int sig, const struct sigaction *act, struct sigaction *old)
{
	bool handled = act->sa_handler != SIG_DFL;
	struct guard g;
	int res;

	guard_enter(&g);
	futex_lock(&lock);
	/* Before there is a handler: it must not run where one of our locks is held. */
	if (handled && guard_let(sig, false))
		renew();
	res = __sigaction(sig, act, old);
	if (res < 0)
		g.err = errno;
	if (look_at(sig))
		renew();
	futex_unlock(&lock);
	guard_leave(&g);
	return res;
}

PUBLIC int ummap_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before;
	struct guard g;

	/* A child of vfork(2) has dispositions of its own, but our memory: what it mappings is not for us. */
	if (!started || getpid() != process)
		return __sigaction(sig, act, old);
	if (sig != SIGSEGV)
		return act && is_deadly(sig) ? set_deadly(sig, act, old) : __sigaction(sig, act, old);
	guard_enter(&g);
	sigsegv_keep();
	futex_lock(&lock);
	before = theirs;
	if (act)
		theirs = *act;
	futex_unlock(&lock);
	if (old)
		*old = before;
	guard_leave(&g);
	return 0;
}
