/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_interrupt - signals while the library works, on storage that is as slow as the test wants: its driver says that it
 * was called, and goes on when the parent process says so. What nobody handles ends the process at once; a handler runs
 * at a pause, where it may use the mapping and jump away. Each case is a process of its own.
 */
#include "common.h"

#include "ummap-driver.h"

#define SEG (16 * KIB)
#define SEGS 128 /* more than one run of requests */
#define SIZE (SEGS * SEG)
/* Longer than the library works between two pauses. */
#define SLOW_MS 50

#ifdef __SANITIZE_ADDRESS__
#define ADDRESS_SANITIZED 1
#else
#define ADDRESS_SANITIZED 0
#endif

/* ---- A store in memory, which survives a process and can be held up once. ---- */

static uint8_t *store;
static int told[2], go[2]; /* pipes: the driver has been called; it may go on */
static _Atomic int held_op = -1;
static volatile sig_atomic_t handled, handled_before_last;
static _Thread_local sigset_t mask_at_work; /* of this thread, when it called the driver last */
static unsigned writes;

static void say(void)
{
	check(write(told[1], "x", 1) == 1);
}

static void listen_to(int fd)
{
	char c;

	while (read(fd, &c, 1) != 1)
		check(errno == EINTR);
}

static void pass(int op)
{
	sigprocmask(SIG_BLOCK, NULL, &mask_at_work);
	if (held_op != op)
		return;
	held_op = -1;
	say();
	listen_to(go[0]);
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
	pass(UMMAP_IO_READ);
	memcpy(buf, store + off, len);
	return 0;
}

static int gate_write(void *h, const void *buf, size_t len, uint64_t off)
{
	(void)h;
	pass(UMMAP_IO_WRITE);
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

/* ---- What the library is at when the signal comes. ---- */

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

#define WRITING 4 /* the first so many */

static uint8_t *prepare(const struct work *w)
{
	uint8_t *m = w->op == UMMAP_IO_WRITE ? map_changed() : map_gate();

	/* No other load comes before. */
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	held_op = w->op;
	return m;
}

/* Sends the signal when the child's driver has been called; and lets it go on, or not. */
static int interrupt(void (*body)(void *), const void *arg, int sig, bool goes_on)
{
	pid_t pid;
	int status;

	check(pipe2(told, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
	pid = start_child(body, (void *)(uintptr_t)arg);
	close(told[1]);
	listen_to(told[0]);
	check(kill(pid, sig) == 0);
	if (goes_on)
		check(write(go[1], "x", 1) == 1);
	status = wait_child(pid);
	close(told[0]);
	close(go[0]);
	close(go[1]);
	return status;
}

/* ---- Nobody handles it. ---- */

static void just_work(void *arg)
{
	const struct work *w = arg;

	w->work(prepare(w));
}

static void had_a_handler(int sig)
{
	(void)sig;
}

/* Handlers from before the first mapping and from later, which are gone again. */
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
	const int sigs[] = { SIGHUP, SIGINT, SIGQUIT, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF, SIGXCPU, SIGRTMIN };

	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++) {
		check_killed(interrupt(just_work, &works[i], SIGTERM, false), SIGTERM);
		check_killed(interrupt(reset_and_work, &works[i], SIGTERM, false), SIGTERM);
		check_killed(interrupt(work_in_thread, &works[i], SIGTERM, false), SIGTERM);
	}
	for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
		check_killed(interrupt(just_work, &works[0], sigs[i], false), sigs[i]);
}

/* A child knows what its parent knew. */
static void fork_and_work(void *unused)
{
	(void)unused;
	map_gate();
	check_killed(interrupt(just_work, &works[0], SIGTERM, false), SIGTERM);
}

/* ---- The program has blocked it, or ignores it. ---- */

static void block_and_work(void *arg)
{
	const struct work *w = arg;
	sigset_t term, pending;
	uint8_t *m;
	int sig;

	/* The threads of the library are there already. */
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

/* Of these, drivers want the error; the one that cancels threads is the C library's. */
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

/* The threads of a forked child's library are new, and what they keep off is known by then. */
static void stay_alive_forked(void *unused)
{
	(void)unused;
	map_gate();
	for (size_t i = 0; i < WRITING; i++)
		check_exits(interrupt(block_and_work, &works[i], SIGTERM, true), 0);
}

/* ---- Handlers. ---- */

static uint8_t *touched;
static bool jumps;
static sigjmp_buf away;

static void on_term(int sig)
{
	check(sig == SIGTERM && gettid() == getpid());
	/* What has been written, what is to be, and all that the fault of a handler could meet. */
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
		check(w->op == UMMAP_IO_READ || handled_before_last, "it ran when all was over");
		return;
	}
	/* Nothing is held. */
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

/* A handler that is there when the library is loaded is one, too. */
__attribute__((unused)) static void handlers_run(void)
{
	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
		check_exits(interrupt(handle_and_work, &works[i], SIGTERM, true), 0);
	for (size_t i = 0; i < WRITING; i++) {
		check_exits(interrupt(touch_and_work, &works[i], SIGTERM, true), 0);
		check_exits(interrupt(jump_and_work, &works[i], SIGTERM, true), 0);
	}
}

/* ---- Installed by a system call of the program's own. ---- */

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
	/* The allocator of the address sanitizer may be locked by another thread during fork(2), and stays
	 * so in the child (GCC 12). */
	if (!ADDRESS_SANITIZED)
		check_exits(run_child(fork_and_work, NULL), 0);
	printf("dies at once\n");
	stay_alive();
	if (!ADDRESS_SANITIZED)
		check_exits(run_child(stay_alive_forked, NULL), 0);
	printf("stays alive\n");
#ifndef __SANITIZE_THREAD__ /* it delays handlers until a later call */
	handlers_run();
	printf("handlers run\n");
#endif
	check_exits(run_child(behind_its_back, NULL), 0);
	return 0;
}
