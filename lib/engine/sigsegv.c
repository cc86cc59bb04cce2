/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Owns the handler of SIGSEGV, and of SIGBUS from the first mapping on whose accesses raise that
 * signal. The calls that install handlers (signals.c) keep the application's handler in `theirs`
 * and report it as if it were installed; for a fault that is not the library's, it is called with
 * its flags and mask. A failed load becomes a SIGBUS that is pending when the handler returns to
 * the instruction; its si_errno distinguishes it from others.
 *
 * This file also records which signals have no handler: those whose default action is to end the
 * process are not blocked while a thread works in the library, and all others are. Lock: `lock`,
 * around `theirs` and the record of other signals, with the signals of guard_mask blocked.
 */
#include "engine/sigsegv.h"

#include "base/log.h"
#include "engine/copy.h"
#include "engine/signals.h"
#include "engine/stack.h"
#include "base/sys.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* The sigaction(3) that ours hides: glibc has another name for it; elsewhere it is the next
 * function of that name. */
#ifdef __GLIBC__
extern int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);
#else
static int __sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	/* The first call comes from sigsegv_start or the program, not from a handler. */
	static int (*_Atomic next)(int sig, const struct sigaction *act, struct sigaction *old);

	if (!next)
		next = (__typeof__(&sigaction))dlsym(RTLD_NEXT, "sigaction");
	return next(sig, act, old);
}
#endif

/* Value of si_errno for a failed load; the kernel's signals have 0. */
#define LOAD_FAILED EIO

/* A signal whose handler is the library's. */
struct owned {
	int sig;
	_Atomic bool started;    /* whether the library's handler is installed */
	struct sigaction theirs; /* handler of the application; under the lock */
};

#define OWNED 2

static enum fault_answer (*serve_fault)(struct fault *fault);
static struct owned all[OWNED] = { { .sig = SIGSEGV }, { .sig = SIGBUS } };
static struct owned *const owned_segv = &all[0], *const owned_bus = &all[1];
static _Thread_local struct sigaction at_fork[OWNED] __attribute__((tls_model("initial-exec")));
static _Atomic uint32_t lock;
static pid_t process; /* process that owns the handlers */

static void on_fault(int sig, siginfo_t *info, void *context);

static struct owned *owned_by(int sig)
{
	for (struct owned *o = all; o < all + OWNED; o++) {
		if (o->sig == sig && o->started)
			return o;
	}
	return NULL;
}

/* The kind of an access. A jump into a mapping (FETCH) cannot be served. */
enum access { LOAD, STORE, FETCH };

#if defined(__aarch64__)
/* Whether an instruction stores to memory. The kernel tells faults of stores from faults of loads,
 * but QEMU only from version 8.2 on. */
static bool is_store(uint32_t instruction)
{
	static const struct { uint32_t mask, value; } stores[] = {
		{ 0xbfff0000, 0x0c000000 }, { 0xbfe00000, 0x0c800000 }, /* ST1 to ST4 */
		{ 0xbfdf0000, 0x0d000000 }, { 0xbfc00000, 0x0d800000 }, /* ST1 to ST4, one lane */
		{ 0x3f400000, 0x08000000 },                             /* STXR, STLR, STXP */
		{ 0x3fa07c00, 0x08a07c00 },                             /* CAS */
		{ 0x3bc00000, 0x39000000 }, { 0x3fc00000, 0x3d800000 }, /* STR with an offset */
		{ 0x3bc00000, 0x38000000 }, { 0x3fe00000, 0x3c800000 }, /* STR, other addresses */
		{ 0x3f208c00, 0x38200000 }, { 0x3f20fc00, 0x38208000 }, /* LDADD and others, SWP */
		{ 0x3a400000, 0x28000000 },                             /* STP */
		{ 0xffffffe0, 0xd50b7420 },                             /* DC ZVA */
	};

	for (size_t i = 0; i < sizeof(stores) / sizeof(*stores); i++) {
		if ((instruction & stores[i].mask) == stores[i].value)
			return true;
	}
	return false;
}
#endif

static enum access access_of(const ucontext_t *context)
{
#if defined(__x86_64__)
	uint64_t error = (uint64_t)context->uc_mcontext.gregs[REG_ERR];

	return error & 16 ? FETCH : error & 2 ? STORE : LOAD;
#elif defined(__aarch64__)
	/* The kernel appends tagged records. The record with the syndrome has the class of the
	 * exception from bit 26 on, and for a data abort the write bit at 6. */
	const uint8_t *p = context->uc_mcontext.__reserved;
	struct { uint32_t magic, size; uint64_t esr; } record;

	for (size_t at = 0; at + sizeof(record) <= sizeof(context->uc_mcontext.__reserved);) {
		memcpy(&record, p + at, sizeof(record));
		if (record.magic == 0x45535201)
			return (record.esr >> 26 & 0x3e) == 0x20 ? FETCH :
			       record.esr & (1 << 6) ? STORE : LOAD;
		if (record.magic == 0 || record.size == 0)
			break;
		at += record.size;
	}
	return is_store(*(const uint32_t *)context->uc_mcontext.pc) ? STORE : LOAD;
#else
#error "the kind of a fault is known for x86-64 and AArch64 only"
#endif
}

/* Sends this thread a signal with a siginfo of the kernel, which a thread may only send to
 * itself. */
static void send_self(int sig, siginfo_t *info)
{
	syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), sig, info);
}

/* Places for breakpoints of a debugger (tools/ummap.gdb). */
#define FOR_DEBUGGERS __attribute__((visibility("default"), noinline))

FOR_DEBUGGERS void ummap_debug_begin(void)
{
	__asm__ volatile("" ::: "memory");
}

FOR_DEBUGGERS void ummap_debug_begin_bus(void)
{
	__asm__ volatile("" ::: "memory");
}

FOR_DEBUGGERS void ummap_debug_crash(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Returns the application's handler of SIGBUS, installed or behind ours. */
static struct sigaction find_bus_handler(void)
{
	struct sigaction act;

	if (!owned_bus->started) {
		__sigaction(SIGBUS, NULL, &act);
		return act;
	}
	futex_lock(&lock);
	act = owned_bus->theirs;
	futex_unlock(&lock);
	return act;
}

/* Raises SIGBUS for a failed load. As with signals of the kernel, a synchronous signal that is
 * blocked or ignored ends the process. */
static void raise_bus(void *addr, ucontext_t *context)
{
	struct sigaction act = find_bus_handler();
	siginfo_t info;
	sigset_t set;

	memset(&info, 0, sizeof(info));
	info.si_signo = SIGBUS;
	info.si_errno = LOAD_FAILED;
	info.si_code = BUS_ADRERR;
	info.si_addr = addr;
	if (sigismember(&context->uc_sigmask, SIGBUS) || act.sa_handler == SIG_IGN ||
	    act.sa_handler == SIG_DFL) {
		ummap_debug_crash();
		memset(&act, 0, sizeof(act));
		act.sa_handler = SIG_DFL;
		__sigaction(SIGBUS, &act, NULL);
		sigdelset(&context->uc_sigmask, SIGBUS);
	}
	/* The signal stays blocked until the handler has returned, so that it arrives at the
	 * instruction. */
	sigemptyset(&set);
	sigaddset(&set, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	send_self(SIGBUS, &info);
}

/* The arguments and the result of serve_on_stack, which may run on another stack. */
struct service {
	struct fault fault;
	ucontext_t *context;
	enum fault_answer answer;
};

static void serve_on_stack(void *arg)
{
	struct service *s = arg;

	s->answer = serve_fault(&s->fault);
	if (s->answer == FAULT_FAILED && !copy_covers(s->fault.addr))
		raise_bus(s->fault.addr, s->context);
}

/* Serves a fault. Returns whether it was the library's. *error: not 0 if the fault ends the copy
 * that this thread makes. */
static bool serve_signal(int sig, siginfo_t *info, void *context, int *error)
{
	enum access access = access_of(context);
	struct service s = { { info->si_addr, access == STORE, sig, 0 }, context, FAULT_FOREIGN };

	*error = 0;
	/* A signal of kill(2) or before the start of the library comes from no access. */
	if (info->si_code <= 0 || !owned_by(sig) || access == FETCH)
		return false;
	/* Other signals report that a load has failed, or memory itself. */
	if (sig != SIGBUS || (!info->si_errno && info->si_code == BUS_ADRERR))
		stack_call(&s.context->uc_stack, serve_on_stack, &s);
	if (s.answer != FAULT_SERVED && copy_covers(info->si_addr))
		*error = s.answer == FAULT_FAILED ? s.fault.error : sig == SIGBUS ? -EIO : 0;
	return s.answer != FAULT_FOREIGN;
}

bool sigsegv_serve(int sig, siginfo_t *info, void *context)
{
	int error;
	bool served = serve_signal(sig, info, context, &error);

	if (error)
		copy_abort(context, error);
	return served;
}

/* Restores the default action, which then happens at the instruction. */
static void die_by_default(struct owned *o, siginfo_t *info)
{
	struct sigaction act;

	ummap_debug_crash();
	memset(&act, 0, sizeof(act));
	act.sa_handler = SIG_DFL;
	__sigaction(o->sig, &act, NULL);
	o->started = false;
	if (info->si_code <= 0)
		send_self(o->sig, info);
}

static void pass_on(struct owned *o, siginfo_t *info, ucontext_t *context)
{
	struct sigaction act;
	sigset_t mask;

	futex_lock(&lock);
	act = o->theirs;
	if ((act.sa_flags & SA_RESETHAND) && act.sa_handler != SIG_IGN)
		o->theirs.sa_handler = SIG_DFL;
	futex_unlock(&lock);
	if (act.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN) {
		die_by_default(o, info);
		return;
	}
	mask = context->uc_sigmask;
	for (int i = 1; i < NSIG; i++) {
		if (sigismember(&act.sa_mask, i) == 1)
			sigaddset(&mask, i);
	}
	if (!(act.sa_flags & SA_NODEFER))
		sigaddset(&mask, o->sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(o->sig, info, context);
	else
		act.sa_handler(o->sig);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno, cancel, error;
	bool served;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	served = serve_signal(sig, info, context, &error);
	errno = saved;
	cancel_restore(cancel);
	if (error)
		copy_abort(context, error);
	if (!served)
		pass_on(sig == SIGBUS ? owned_bus : owned_segv, info, context);
	errno = saved;
}

/* Installs the library's handler. The caller holds the lock. */
static int install_handler(const struct owned *o)
{
	uint64_t mask = guard_mask();
	struct sigaction act;

	memset(&act, 0, sizeof(act));
	act.sa_sigaction = on_fault;
	/* NODEFER: a driver may access memory of another mapping. */
	act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;
	memcpy(&act.sa_mask, &mask, sizeof(mask));
	return __sigaction(o->sig, &act, NULL) < 0 ? -errno : 0;
}

static bool is_ours(const struct sigaction *act)
{
	return (act->sa_flags & SA_SIGINFO) && act->sa_sigaction == on_fault;
}

/* Returns whether the default action of the signal is to end or to stop the process. Excludes
 * signals that a system call raises in the calling thread, because drivers rely on the error of
 * such a call, and the C library's own signals. */
static bool is_deadly(int sig)
{
	static const int deadly[] = { SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM,
				      SIGSTKFLT, SIGTSTP, SIGXCPU, SIGVTALRM, SIGPROF, SIGPOLL,
				      SIGPWR };

	for (size_t i = 0; i < sizeof(deadly) / sizeof(*deadly); i++) {
		if (sig == deadly[i])
			return true;
	}
	return sig >= SIGRTMIN && sig <= SIGRTMAX;
}

/* Updates the mask of the library's handlers. A handler that the program has replaced is left to
 * sigsegv_keep. The caller holds the lock. */
static void update_masks(void)
{
	struct sigaction act;

	for (struct owned *o = all; o < all + OWNED; o++) {
		if (o->started && __sigaction(o->sig, NULL, &act) == 0 && is_ours(&act))
			install_handler(o);
	}
}

/* Reads whether the signal may end the process. Returns whether that has changed. The caller holds
 * the lock. */
static bool read_other(int sig)
{
	struct sigaction act;

	return is_deadly(sig) && __sigaction(sig, NULL, &act) == 0 &&
	       guard_note_action(sig, act.sa_handler == SIG_DFL);
}

void sigsegv_read_others(void)
{
	bool changed = false;

	if (!owned_segv->started)
		return;
	futex_lock(&lock);
	for (int sig = 1; sig < NSIG; sig++)
		changed |= read_other(sig);
	if (changed)
		update_masks();
	futex_unlock(&lock);
}

static const char *name_of(const struct owned *o)
{
	return o == owned_bus ? "SIGBUS" : "SIGSEGV";
}

/* Installs the handler for the first time. */
static int own_signal(struct owned *o)
{
	int err = __sigaction(o->sig, NULL, &o->theirs) < 0 ? -errno : install_handler(o);

	if (err)
		return fail(-err, "cannot install the handler of %s: %s", name_of(o),
			    strerror(-err));
	o->started = true;
	return 0;
}

int sigsegv_start(enum fault_answer (*serve)(struct fault *fault))
{
	int err;

	serve_fault = serve;
	process = getpid();
	err = own_signal(owned_segv);
	if (err)
		return err;
	sigsegv_read_others();
	ummap_debug_begin();
	return 0;
}

int sigsegv_start_bus(void)
{
	int err = 0;

	futex_lock(&lock);
	if (!owned_bus->started)
		err = own_signal(owned_bus);
	futex_unlock(&lock);
	if (!err)
		ummap_debug_begin_bus();
	return err;
}

/* Returns whether another handler had taken the place of the library's. */
static bool put_in_front(struct owned *o)
{
	struct sigaction act;

	if (!o->started || __sigaction(o->sig, NULL, &act) < 0 || is_ours(&act))
		return false;
	futex_lock(&lock);
	o->theirs = act;
	install_handler(o);
	futex_unlock(&lock);
	return true;
}

void sigsegv_keep(void)
{
	static _Atomic bool has_warned;

	for (struct owned *o = all; o < all + OWNED; o++) {
		if (put_in_front(o) && !atomic_exchange(&has_warned, true))
			log_line(LOG_WARN, "sigsegv", "the handler of %s was replaced without "
				 "sigaction(3). The library's handler is in front again, and "
				 "passes other signals to the new handler", name_of(o));
	}
}

/* fork(2) copies memory while other threads continue, so the child would find a structure that is
 * being changed half changed. */
void sigsegv_fork_prepare(void)
{
	futex_lock(&lock);
	for (int i = 0; i < OWNED; i++)
		at_fork[i] = all[i].theirs;
	futex_unlock(&lock);
}

void sigsegv_fork_child(void)
{
	for (int i = 0; i < OWNED; i++)
		all[i].theirs = at_fork[i];
	process = getpid();
	lock = 0;
}

/* Sets the handler of a signal that may end the process. */
static int set_deadly(int sig, const struct sigaction *act, struct sigaction *old)
{
	bool handled = act->sa_handler != SIG_DFL;
	struct guard g;
	int res;

	guard_enter(&g);
	futex_lock(&lock);
	/* The signal is blocked before it has a handler, which must not run while a thread holds
	 * one of our locks. */
	if (handled && guard_note_action(sig, false))
		update_masks();
	res = __sigaction(sig, act, old);
	if (res < 0)
		g.err = errno;
	if (read_other(sig))
		update_masks();
	futex_unlock(&lock);
	guard_leave(&g);
	return res;
}

/* Sets the application's handler of a signal that the library owns. */
static int set_theirs(struct owned *o, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before;
	struct guard g;

	guard_enter(&g);
	sigsegv_keep();
	futex_lock(&lock);
	before = o->theirs;
	if (act)
		o->theirs = *act;
	futex_unlock(&lock);
	if (old)
		*old = before;
	guard_leave(&g);
	return 0;
}

PUBLIC int ummap_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct owned *o;

	/* A child of vfork(2) has handlers of its own, but our memory: its changes must not reach
	 * `theirs`. A race detector makes this call before it can watch any other call here. */
	if (!owned_segv->started || getpid() != process)
		return __sigaction(sig, act, old);
	o = owned_by(sig);
	if (o)
		return set_theirs(o, act, old);
	return act && is_deadly(sig) ? set_deadly(sig, act, old) : __sigaction(sig, act, old);
}
