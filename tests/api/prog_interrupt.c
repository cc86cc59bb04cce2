/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signals during calls of the library. The store is as slow as the test requires: its driver
 * reports that it was called, and continues when the parent process permits it. A signal without a
 * handler ends the process at once. A handler runs between two parts of a call, and may use the
 * mapping or jump away. Each case runs in its own process.
 */
#include "common.h"

#include "ummap-driver.h"

#define SEG (16 * KIB)
#define SEGS 128 /* more than one run of requests */
#define SIZE (SEGS * SEG)
/* Milliseconds, longer than the library works between two points where handlers run. */
#define SLOW_MS 50

/* ---- A store in memory that is shared with children and can be delayed once. ---- */

static uint8_t *store;
static int told[2], go[2]; /* pipes: the driver has been called; the driver may continue */
static _Atomic int held_op = -1;
static volatile sig_atomic_t handled, handled_before_last;
static _Thread_local sigset_t mask_at_work; /* mask of the thread at its last call of the driver */
static unsigned writes;

static void report_call(void)
{
	check(write(told[1], "x", 1) == 1);
}

static void wait_for_byte(int fd)
{
	char c;

	while (read(fd, &c, 1) != 1)
		check(errno == EINTR);
}

static void wait_at_gate(int op)
{
	sigprocmask(SIG_BLOCK, NULL, &mask_at_work);
	if (held_op != op)
		return;
	held_op = -1;
	report_call();
	wait_for_byte(go[0]);
	pause_ms(SLOW_MS);
}

static int gate_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	*h = store;
	geom->size = SIZE;
	geom->align = 1;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	return 0;
}

static int gate_close(void *h)
{
	(void)h;
	return 0;
}

static int gate_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h;
	wait_at_gate(UMMAP_IO_READ);
	memcpy(buf, store + off, len);
	return 0;
}

static int gate_write(void *h, const void *buf, size_t len, uint64_t off)
{
	(void)h;
	wait_at_gate(UMMAP_IO_WRITE);
	if (++writes == SEGS)
		handled_before_last = handled;
	memcpy(store + off, buf, len);
	return 0;
}

static const struct ummap_driver gate = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "gate",
	.open = gate_open,
	.close = gate_close,
	.read = gate_read,
	.write = gate_write,
};

static uint8_t *map_gate(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	check(ummap_driver_register(&gate) == 0 || errno == EEXIST);
	check(ummap_open("gate:here", SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	return addr;
}

static uint8_t *map_changed(void)
{
	uint8_t *m = map_gate();

	for (size_t i = 0; i < SEGS; i++)
		m[i * SEG] = (uint8_t)(i | 1);
	writes = 0;
	return m;
}

/* ---- Calls that a signal interrupts ---- */

static void sync_it(uint8_t *m)
{
	check(umsync(m, 0) == 0);
}

static void sync_range(uint8_t *m)
{
	check(umsync_range(m, SIZE, 0) == 0);
}

static void end_it(uint8_t *m)
{
	check(umunmap(m, 1) == 0);
}

static void remap_it(uint8_t *m)
{
	void *to = m;

	check(umremap(m, SIZE, -1, -1, UMMAP_SYNC, &to) == 0 && to == m);
}

static void load_it(uint8_t *m)
{
	check(*(volatile uint8_t *)m == store[0]);
}

static const struct work {
	const char *name;
	void (*work)(uint8_t *m);
	int op;
} works[] = {
	{ "umsync", sync_it, UMMAP_IO_WRITE },
	{ "umsync_range", sync_range, UMMAP_IO_WRITE },
	{ "umunmap", end_it, UMMAP_IO_WRITE },
	{ "umremap", remap_it, UMMAP_IO_WRITE },
	{ "a load", load_it, UMMAP_IO_READ },
};

#define WRITING_WORKS 4 /* number of calls that write, at the beginning of the table */

static uint8_t *prepare(const struct work *w)
{
	uint8_t *m = w->op == UMMAP_IO_WRITE ? map_changed() : map_gate();

	/* Readahead must not call the driver before the load does. */
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	held_op = w->op;
	return m;
}

/* Sends the signal when the child's driver has been called. goes_on: then lets it continue. */
static int interrupt(void (*body)(void *), const void *arg, int sig, bool goes_on)
{
	pid_t pid;
	int status;

	check(pipe2(told, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
	pid = start_child(body, (void *)(uintptr_t)arg);
	close(told[1]);
	wait_for_byte(told[0]);
	check(kill(pid, sig) == 0);
	if (goes_on)
		check(write(go[1], "x", 1) == 1);
	status = wait_child(pid);
	close(told[0]);
	close(go[0]);
	close(go[1]);
	return status;
}

/* ---- Signals without a handler ---- */

static void just_work(void *arg)
{
	const struct work *w = arg;

	w->work(prepare(w));
}

static void had_a_handler(int sig)
{
	(void)sig;
}

/* The program sets and removes handlers before and after the first mapping. */
static void reset_and_work(void *arg)
{
	const struct work *w = arg;
	uint8_t *m;

	check(signal(SIGTERM, had_a_handler) == SIG_DFL);
	m = prepare(w);
	check(signal(SIGTERM, SIG_DFL) == had_a_handler);
	check(signal(SIGTERM, had_a_handler) == SIG_DFL);
	check(signal(SIGTERM, SIG_DFL) == had_a_handler);
	w->work(m);
}

static void *thread_body(void *arg)
{
	just_work(arg);
	return NULL;
}

static void work_in_thread(void *arg)
{
	pthread_t thread;

	check(pthread_create(&thread, NULL, thread_body, arg) == 0);
	check(pthread_join(thread, NULL) == 0);
}

static void die_at_once(void)
{
	const int sigs[] = { SIGHUP,  SIGINT,    SIGQUIT, SIGALRM, SIGTERM, SIGUSR1,
			     SIGUSR2, SIGVTALRM, SIGPROF, SIGXCPU, SIGRTMIN };

	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++) {
		check_killed(interrupt(just_work, &works[i], SIGTERM, false), SIGTERM);
		check_killed(interrupt(reset_and_work, &works[i], SIGTERM, false), SIGTERM);
		check_killed(interrupt(work_in_thread, &works[i], SIGTERM, false), SIGTERM);
	}
	for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
		check_killed(interrupt(just_work, &works[0], sigs[i], false), sigs[i]);
}

/* A forked child knows the handlers that its parent knew. */
static void fork_and_work(void *unused)
{
	(void)unused;
	map_gate();
	check_killed(interrupt(just_work, &works[0], SIGTERM, false), SIGTERM);
}

/* ---- Signals that the program blocks or ignores ---- */

static void block_and_work(void *arg)
{
	const struct work *w = arg;
	sigset_t term, pending;
	uint8_t *m;
	int sig;

	/* The library has started its threads. */
	m = prepare(w);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	check(sigprocmask(SIG_BLOCK, &term, NULL) == 0);
	w->work(m);
	check(sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1);
	check(sigwait(&term, &sig) == 0 && sig == SIGTERM);
}

static void ignore_and_work(void *arg)
{
	const struct work *w = arg;

	check(signal(SIGTERM, SIG_IGN) == SIG_DFL);
	w->work(prepare(w));
}

/* Drivers need the errors that replace these signals. Bit 31 is glibc's signal that cancels
 * threads. */
static void look_at_mask(void *unused)
{
	uint8_t *m = map_changed();
	uint64_t mask;

	(void)unused;
	sync_it(m);
	check(sigismember(&mask_at_work, SIGPIPE) == 1 && sigismember(&mask_at_work, SIGXFSZ) == 1);
	memcpy(&mask, &mask_at_work, sizeof(mask));
	check(mask >> 31 & 1);
}

static void stay_alive(void)
{
	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++) {
		check_exits(interrupt(block_and_work, &works[i], SIGTERM, true), 0);
		check_exits(interrupt(ignore_and_work, &works[i], SIGTERM, true), 0);
	}
	check_exits(run_child(look_at_mask, NULL), 0);
}

/* In a forked child, the threads of the library start after the signals are blocked. */
static void stay_alive_forked(void *unused)
{
	(void)unused;
	map_gate();
	for (size_t i = 0; i < WRITING_WORKS; i++)
		check_exits(interrupt(block_and_work, &works[i], SIGTERM, true), 0);
}

/* ---- Handlers ---- */

static uint8_t *touched;
static bool jumps;
static sigjmp_buf away;

static void on_term(int sig)
{
	check(sig == SIGTERM && gettid() == getpid());
	/* Segments that were written, segments that will be, and other accesses of a handler. */
	for (size_t i = 0; touched && i < SEGS; i++) {
		volatile uint8_t *p = touched + i * SEG;

		check(p[0] == (uint8_t)(i | 1));
		p[1] = 7;
	}
	handled = 1;
	if (jumps)
		siglongjmp(away, 1);
}

static void handle(const struct work *w, bool touches)
{
	uint8_t *m;

	check(signal(SIGTERM, on_term) == SIG_DFL);
	m = prepare(w);
	touched = touches ? m : NULL;
	if (sigsetjmp(away, 1) == 0)
		w->work(m);
	check(handled);
	touched = NULL;
	if (!jumps) {
		check(w->op == UMMAP_IO_READ || handled_before_last,
		      "the handler ran after the call");
		return;
	}
	/* No lock is held. */
	check(umsync(m, 0) == 0);
	for (size_t i = 0; i < SEGS && touches; i++)
		check(store[i * SEG] == (uint8_t)(i | 1) && store[i * SEG + 1] == 7);
	check(umunmap(m, 1) == 0);
}

static void handle_and_work(void *arg)
{
	handle(arg, false);
}

static void touch_and_work(void *arg)
{
	handle(arg, true);
}

static void jump_and_work(void *arg)
{
	jumps = true;
	handle(arg, true);
}

/* A handler that the program installs before the library is loaded runs, too. */
__attribute__((unused)) static void handlers_run(void)
{
	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
		check_exits(interrupt(handle_and_work, &works[i], SIGTERM, true), 0);
	for (size_t i = 0; i < WRITING_WORKS; i++) {
		check_exits(interrupt(touch_and_work, &works[i], SIGTERM, true), 0);
		check_exits(interrupt(jump_and_work, &works[i], SIGTERM, true), 0);
	}
}

/* ---- Handlers installed by a system call that the library does not see ---- */

struct kernel_action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

static bool is_blocked_at_work(uint8_t *m)
{
	m[0]++;
	check(umsync(m, 0) == 0);
	return sigismember(&mask_at_work, SIGTERM);
}

static void behind_its_back(void *unused)
{
	struct kernel_action action = { .handler = had_a_handler };
	uint8_t *m = map_gate();

	(void)unused;
	check(!is_blocked_at_work(m));
	check(syscall(SYS_rt_sigaction, SIGTERM, &action, NULL, 8) == 0);
	for (double end = now() + 60; !is_blocked_at_work(m) && now() < end;)
		pause_ms(20);
	check(is_blocked_at_work(m));
	check(signal(SIGTERM, SIG_DFL) == had_a_handler);
	check(!is_blocked_at_work(m));
}

int main(void)
{
	store = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(store != MAP_FAILED);
	set_budget(4 * SIZE);
	die_at_once();
	if (!ADDRESS_SANITIZED)
		check_exits(run_child(fork_and_work, NULL), 0);
	printf("dies at once\n");
	stay_alive();
	if (!ADDRESS_SANITIZED)
		check_exits(run_child(stay_alive_forked, NULL), 0);
	printf("stays alive\n");
#ifndef __SANITIZE_THREAD__ /* TSan delays handlers until a later call */
	handlers_run();
	printf("handlers run\n");
#endif
	check_exits(run_child(behind_its_back, NULL), 0);
	return 0;
}
