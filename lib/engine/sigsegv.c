/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Owns the disposition of SIGSEGV, and of SIGBUS from the first mapping on whose accesses raise that. The calls that
 * install handlers (signals.c) keep the application's in `theirs` and report it as if it were installed; for a fault
 * that is not the library's, it is called with its flags and mask. A failed load becomes a SIGBUS that is pending when
 * the handler returns to the instruction, and is told from others by its si_errno. It also records which
 * signals have no handler: those whose default action is to end the process are not blocked while a thread works in the
 * library, and all others are. One lock, around `theirs` and the record of other signals, with the signals of
 * guard_mask blocked.
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

/* What a failed load has in si_errno; the kernel's signals have 0. */
#define LOAD_FAILED EIO

/* A signal whose handler is the library's. */
struct owned {
	int sig;
	_Atomic bool started;
	struct sigaction theirs;
};

#define OWNED 2

static enum fault_answer (*answer)(struct fault *fault);
static struct owned all[OWNED] = { { .sig = SIGSEGV }, { .sig = SIGBUS } };
static struct owned *const segv = &all[0], *const bus = &all[1];
static _Thread_local struct sigaction at_fork[OWNED] __attribute__((tls_model("initial-exec")));
static _Atomic uint32_t lock;
static pid_t process;

static void on_fault(int sig, siginfo_t *info, void *context);

static struct owned *owned_by(int sig)
{
	for (struct owned *o = all; o < all + OWNED; o++) {
		if (o->sig == sig && o->started)
			return o;
	}
	return NULL;
}

/* What the CPU was doing: a jump into a mapping is nothing that we can serve. */
enum access { LOAD, STORE, FETCH };

#if defined(__aarch64__)
/* Whether an instruction stores to memory. The kernel says whether a fault is one of a store, but QEMU
 * does so only from version 8.2 on. */
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
	return is_store(*(const uint32_t *)context->uc_mcontext.pc) ? STORE : LOAD;
#else
#error "the kind of a fault is known for x86-64 and AArch64 only"
#endif
}

/* Sends this thread a signal with a kernel's siginfo: allowed to oneself. */
static void send_self(int sig, siginfo_t *info)
{
	syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), sig, info);
}

/* Where a debugger's breakpoints go (tools/ummap.gdb): from now on faults are ordinary; the next one ends the
 * process. */
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

/* The application's handler of SIGBUS, installed or behind ours. */
static struct sigaction handler_of_bus(void)
{
	struct sigaction act;

	if (!bus->started) {
		__sigaction(SIGBUS, NULL, &act);
		return act;
	}
	futex_lock(&lock);
	act = bus->theirs;
	futex_unlock(&lock);
	return act;
}

/* A synchronous signal that is blocked or ignored kills: so the kernel does it, so do we. */
static void raise_bus(void *addr, ucontext_t *context)
{
	struct sigaction act = handler_of_bus();
	siginfo_t info;
	sigset_t set;

	memset(&info, 0, sizeof(info));
	info.si_signo = SIGBUS;
	info.si_errno = LOAD_FAILED;
	info.si_code = BUS_ADRERR;
	info.si_addr = addr;
	if (sigismember(&context->uc_sigmask, SIGBUS) || act.sa_handler == SIG_IGN || act.sa_handler == SIG_DFL) {
		ummap_debug_crash();
		memset(&act, 0, sizeof(act));
		act.sa_handler = SIG_DFL;
		__sigaction(SIGBUS, &act, NULL);
		sigdelset(&context->uc_sigmask, SIGBUS);
	}
	/* Blocked until the handler has returned: the signal must meet the instruction, not us. */
	sigemptyset(&set);
	sigaddset(&set, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	send_self(SIGBUS, &info);
}

/* A fault on its way to another stack. */
struct serving {
	struct fault fault;
	ucontext_t *context;
	enum fault_answer answer;
};

static void serve(void *arg)
{
	struct serving *s = arg;

	s->answer = answer(&s->fault);
	if (s->answer == FAULT_FAILED && !copy_covers(s->fault.addr))
		raise_bus(s->fault.addr, s->context);
}

/* Serves a fault. On return, *error is not 0 if it ends the copy that this thread makes. */
static bool serve_fault(int sig, siginfo_t *info, void *context, int *error)
{
	enum access access = access_of(context);
	struct serving s = { { info->si_addr, access == STORE, sig == SIGBUS, 0 }, context,
			     FAULT_FOREIGN };

	*error = 0;
	/* Sent by kill(2) or the like, or before the library started: no access has faulted. */
	if (info->si_code <= 0 || !owned_by(sig) || access == FETCH)
		return false;
	/* A load has failed, or memory itself. */
	if (sig != SIGBUS || (!info->si_errno && info->si_code == BUS_ADRERR))
		stack_call(&s.context->uc_stack, serve, &s);
	if (s.answer != FAULT_SERVED && copy_covers(info->si_addr))
		*error = s.answer == FAULT_FAILED ? s.fault.error : sig == SIGBUS ? -EIO : 0;
	return s.answer != FAULT_FOREIGN;
}

bool sigsegv_serve(int sig, siginfo_t *info, void *context)
{
	int error;
	bool served = serve_fault(sig, info, context, &error);

	if (error)
		copy_abort(context, error);
	return served;
}

/* The default action has to happen at the instruction, as if we had never been there. */
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
	served = serve_fault(sig, info, context, &error);
	errno = saved;
	cancel_restore(cancel);
	if (error)
		copy_abort(context, error);
	if (!served)
		pass_on(sig == SIGBUS ? bus : segv, info, context);
	errno = saved;
}

/* Under the lock. */
static int install(const struct owned *o)
{
	uint64_t mask = guard_mask();
	struct sigaction act;

	memset(&act, 0, sizeof(act));
	act.sa_sigaction = on_fault;
	/* NODEFER: a driver may itself touch memory of another mapping. */
	act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;
	memcpy(&act.sa_mask, &mask, sizeof(mask));
	return __sigaction(o->sig, &act, NULL) < 0 ? -errno : 0;
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

/* Under the lock: updates the mask of the library's handlers. If one was replaced, sigsegv_keep will see. */
static void renew(void)
{
	struct sigaction act;

	for (struct owned *o = all; o < all + OWNED; o++) {
		if (o->started && __sigaction(o->sig, NULL, &act) == 0 && is_ours(&act))
			install(o);
	}
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

	if (!segv->started)
		return;
	futex_lock(&lock);
	for (int sig = 1; sig < NSIG; sig++)
		changed |= look_at(sig);
	if (changed)
		renew();
	futex_unlock(&lock);
}

static const char *name_of(const struct owned *o)
{
	return o == bus ? "SIGBUS" : "SIGSEGV";
}

static int own(struct owned *o)
{
	int err = __sigaction(o->sig, NULL, &o->theirs) < 0 ? -errno : install(o);

	if (err)
		return fail(-err, "cannot install the handler of %s: %s", name_of(o),
			    strerror(-err));
	o->started = true;
	return 0;
}

int sigsegv_start(enum fault_answer (*ours)(struct fault *fault))
{
	int err;

	answer = ours;
	process = getpid();
	err = own(segv);
	if (err)
		return err;
	chain_look();
	ummap_debug_begin();
	return 0;
}

int sigsegv_start_bus(void)
{
	int err = 0;

	futex_lock(&lock);
	if (!bus->started)
		err = own(bus);
	futex_unlock(&lock);
	if (!err)
		ummap_debug_begin_bus();
	return err;
}

/* Whether it was not in front. */
static bool put_in_front(struct owned *o)
{
	struct sigaction act;

	if (!o->started || __sigaction(o->sig, NULL, &act) < 0 || is_ours(&act))
		return false;
	futex_lock(&lock);
	o->theirs = act;
	install(o);
	futex_unlock(&lock);
	return true;
}

void sigsegv_keep(void)
{
	static _Atomic bool told;

	for (struct owned *o = all; o < all + OWNED; o++) {
		if (put_in_front(o) && !atomic_exchange(&told, true))
			log_line(LOG_WARN, "sigsegv", "the handler of %s was replaced without "
				 "sigaction(3). The library's handler is in front again, and "
				 "passes other signals to the new handler", name_of(o));
	}
}

/* fork(2) copies memory while other threads go on: what is being changed, a child would find half changed. */
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

	/* A child of vfork(2) has dispositions of its own, but our memory: what it changes is not for us. And a race detector makes
	 * this call before it can watch any of the others here. */
	if (!segv->started || getpid() != process)
		return __sigaction(sig, act, old);
	o = owned_by(sig);
	if (o)
		return set_theirs(o, act, old);
	return act && is_deadly(sig) ? set_deadly(sig, act, old) : __sigaction(sig, act, old);
}
