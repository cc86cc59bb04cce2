/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fault preserves errno, the signal mask, cancellation and locks. If a store fails during a load,
 * the thread gets a call of the function set by umonerror, and SIGBUS with the address.
 */
#include "common.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)
#define BUDGET (SIZE / 8)
#define OLD 1

static uint8_t *map_old(void)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	close(fd);
	return m;
}

/* ---- errno ---- */

static void errno_is_untouched(void *unused)
{
	volatile uint8_t *m = map_old();

	(void)unused;
	for (int pass = 0; pass < 3; pass++) {
		for (size_t at = 0; at < SIZE; at += SEG) {
			uint8_t value;

			errno = 1234;
			value = m[at];
			check(errno == 1234);
			m[at] = value + 1;
			check(errno == 1234);
			m[(at + SIZE / 2) % SIZE] ^= 1;
			check(errno == 1234);
		}
	}
}

/* The signal mask of the application is the same after a fault. */
static void mask_is_untouched(void *unused)
{
	volatile uint8_t *m = map_old();
	sigset_t blocked, seen;

	(void)unused;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	check(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
	for (size_t at = 0; at < SIZE; at += SEG)
		m[at] = 1;
	check(sigprocmask(SIG_SETMASK, NULL, &seen) == 0);
	check(sigismember(&seen, SIGUSR1) && !sigismember(&seen, SIGUSR2) &&
	      !sigismember(&seen, SIGSEGV));
}

/* ---- Functions of libc that another library has replaced ---- */

static volatile sig_atomic_t replaced_calls;

/* Replaces the function as a library does that watches mappings and passes on four arguments. */
__attribute__((visibility("default"))) void *mremap(void *old, size_t old_len, size_t len,
						    int flags, ...)
{
	replaced_calls++;
	return (void *)syscall(SYS_mremap, old, old_len, len, flags, NULL);
}

static void goes_without_mremap(void *unused)
{
	uint8_t *m = map_old();

	(void)unused;
	check_bytes(m, SIZE, 0, OLD);
	check(umsync(m, 1) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(replaced_calls == 0);
}

/* ---- Cancellation ---- */

struct busy {
	uint8_t *m;
	int type;
	uint64_t random;
};

static void *fault_until_cancelled(void *arg)
{
	struct busy *b = arg;

	pthread_setcanceltype(b->type, NULL);
	for (;;) {
		uint64_t dice = next_random(&b->random);
		volatile uint8_t *at = b->m + dice % SIZE;

		*at = pattern(at - b->m, OLD);
		if (b->type == PTHREAD_CANCEL_DEFERRED)
			pthread_testcancel();
	}
	return NULL;
}

static void cancel_often(void *type)
{
	struct busy busy = { map_old(), *(int *)type, 1 };

	for (unsigned i = 0; i < by_time(30, 100); i++) {
		struct timespec moment = { 0, next_random(&busy.random) % 3000000 };
		pthread_t threads[2];
		struct busy each[2] = { busy, busy };
		void *result;

		for (int t = 0; t < 2; t++) {
			each[t].random += t;
			check(pthread_create(&threads[t], NULL, fault_until_cancelled, &each[t]) ==
			      0);
		}
		nanosleep(&moment, NULL);
		for (int t = 0; t < 2; t++)
			check(pthread_cancel(threads[t]) == 0);
		for (int t = 0; t < 2; t++) {
			check(pthread_join(threads[t], &result) == 0);
			check(result == PTHREAD_CANCELED, "%p", result);
		}
		/* No cancelled thread has kept a lock. */
		check_bytes(busy.m, SIZE, 0, OLD);
		check(umsync(busy.m, i % 2) == 0);
	}
	check(umunmap(busy.m, 1) == 0);
}

/* ---- Loads that fail ---- */

static volatile sig_atomic_t steps, told_at, bus_at;
static void *volatile told_address;
static volatile int told_error;
static siginfo_t volatile bus_seen;

static void note_error(void *addr, int error)
{
	told_at = ++steps;
	told_address = addr;
	told_error = error;
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	bus_at = ++steps;
	bus_seen = *info;
}

static void on_bus_and_jump(int sig, siginfo_t *info, void *context)
{
	on_bus(sig, info, context);
	siglongjmp(bus_jump, 1);
}

static void handle_bus(void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	check(sigaction(SIGBUS, &action, NULL) == 0);
}

/* Returns a mapping of which `times` reads fail, from the nth on. */
static uint8_t *map_failing(unsigned nth, unsigned times)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[512];
	int fd = temp_named("failing", 0, path);
	void *addr;

	file_fill(fd, 0, SIZE, 0, OLD);
	close(fd);
	snprintf(uri, sizeof(uri),
		 "error+posix:%s?error.op=read&error.nth=%u&error.errno=EIO&error.times=%u", path,
		 nth, times);
	attr.seg_size = SEG;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	check(umadvise(addr, SIZE, UMMAP_ADV_RANDOM) == 0);
	return addr;
}

static void check_told(uint8_t *at)
{
	check(told_at == 1 && bus_at == 2, "umonerror %d, SIGBUS %d", told_at, bus_at);
	check(told_address == at && told_error == EIO, "%p %d", told_address, told_error);
	check(bus_seen.si_addr == at, "%p, not %p", bus_seen.si_addr, at);
	check(bus_seen.si_signo == SIGBUS && bus_seen.si_code == BUS_ADRERR, "code %d",
	      bus_seen.si_code);
	steps = told_at = bus_at = 0;
}

static void told_then_sigbus(void *unused)
{
	uint8_t *m = map_failing(1, 3);
	uint64_t value;

	(void)unused;
	check(umonerror(note_error) == 0);
	handle_bus(on_bus_and_jump);
	check(!try_load(m + SEG + 123, &value));
	check_told(m + SEG + 123);
	check(!try_load(m + SEG + 123, &value));
	check_told(m + SEG + 123);
	check(!try_store(m + 5 * SEG + 4095, 1));
	check_told(m + 5 * SEG + 4095);
	check(try_load(m + SEG + 123, &value) && steps == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(stat_of(m).read_errors == 3);
	check(umunmap(m, 1) == 0);
}

/* umonerror(NULL): SIGBUS only. When the handler returns, the instruction is repeated. */
static void sigbus_alone_and_again(void *unused)
{
	uint8_t *m = map_failing(2, 2);

	(void)unused;
	check(umonerror(note_error) == 0 && umonerror(NULL) == 0);
	handle_bus(on_bus);
	check_bytes(m, SIZE, 0, OLD);
	check(steps == 2 && told_at == 0 && bus_at == 2);
	check(umunmap(m, 1) == 0);
}

static void sigbus_kills(void *unused)
{
	(void)unused;
	check_bytes(map_failing(3, 1000000), SIZE, 0, OLD);
}

/* A pin and other calls do not raise SIGBUS, but return the error. */
static void pin_returns_the_error(void *unused)
{
	uint8_t *m = map_failing(2, 1);

	(void)unused;
	check_fails(umpin(m, 3 * SEG, READ_WRITE), EIO);
	check(stat_of(m).pinned_bytes == 0);
	check(umpin(m, 3 * SEG, READ_WRITE) == 0);
	check_bytes(m, 3 * SEG, 0, OLD);
	check(umunpin(m, 3 * SEG) == 0);
	check(umunmap(m, 1) == 0);
}

/* Advice is not reported to fail. The load reads again what failed in the background. */
static void advice_does_not_fail(void *unused)
{
	uint8_t *m = map_failing(1, 1);

	(void)unused;
	handle_bus(on_bus);
	check(umadvise(m, 4 * SEG, UMMAP_ADV_WILLNEED) == 0);
	for (double end = now() + 60; stat_of(m).read_errors == 0; pause_ms(5))
		check(now() < end, "the advice is followed");
	check_bytes(m, SIZE, 0, OLD);
	check(bus_at == 0);
	check(umunmap(m, 1) == 0);
}

int main(void)
{
	static int deferred = PTHREAD_CANCEL_DEFERRED, asynchronous = PTHREAD_CANCEL_ASYNCHRONOUS;

	set_budget(BUDGET);
	check_exits(run_child(errno_is_untouched, NULL), 0);
	check_exits(run_child(mask_is_untouched, NULL), 0);
	check_exits(run_child(goes_without_mremap, NULL), 0);
	check_exits(run_child(cancel_often, &deferred), 0);
	check_exits(run_child(cancel_often, &asynchronous), 0);
	check_exits(run_child(told_then_sigbus, NULL), 0);
	check_exits(run_child(sigbus_alone_and_again, NULL), 0);
	check_killed(run_child(sigbus_kills, NULL), SIGBUS);
	check_exits(run_child(pin_returns_the_error, NULL), 0);
	check_exits(run_child(advice_does_not_fail, NULL), 0);
	return 0;
}
