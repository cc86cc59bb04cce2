/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine uffd: which mappings have it, which rights it needs, loads that fail, and its effects
 * on the rest of the process.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <spawn.h>
#include <stddef.h>

#include "common.h"
#include "uffd.h"

#ifndef UFFD_USER_MODE_ONLY /* Linux 5.11 */
#define UFFD_USER_MODE_ONLY 1
#endif

#define SEG (4 * KIB)
#define SIZE (64 * SEG)
#define OLD 1
#define NEW 2

static const struct ummap_attr init = UMMAP_ATTR_INIT;

static int open_mem(const struct ummap_attr *attr, uint8_t **m)
{
	return ummap_open("mem:8M", 8 * MIB, 0, READ_WRITE, attr, (void **)m);
}

/* Whether system calls wait for absent segments. */
static bool kernel_waits(uint8_t *m)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	ssize_t got = read(fd, m, 4 * KIB);

	check(got == (ssize_t)(4 * KIB) || (got == -1 && errno == EFAULT));
	close(fd);
	return got > 0;
}

/* Runs in a child, because the library reads the environment once. */
static void try_kernel(void *unused)
{
	struct ummap_attr attr = init;
	uint8_t *m;

	(void)unused;
	attr.flags = UMMAP_KERNEL;
	attr.engine = UMMAP_ENGINE_AUTO;
	exit(open_mem(&attr, &m) == 0                                 ? 0 :
	     errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP ? 77 :
									1);
}

static void skip_unless_allowed(void)
{
	int status = run_child(try_kernel, NULL);

	check(WIFEXITED(status) && WEXITSTATUS(status) != 1);
	if (WEXITSTATUS(status) == 77)
		cr_skip_test("userfaultfd may not see accesses by the kernel here");
}

static void skip_without_uffd(void)
{
	if (!has_uffd())
		cr_skip_test(NO_UFFD);
}

/* ---- Which engine ---- */

static const struct {
	const char *variable;
	int engine;
	unsigned flags;
	size_t seg;
	bool waits, bus;
} choices[] = {
	{ "auto", UMMAP_ENGINE_DEFAULT, 0, 2 * MIB, .waits = false },
	{ "auto", UMMAP_ENGINE_DEFAULT, 0, 64 * KIB, .waits = false },
	{ "auto", UMMAP_ENGINE_DEFAULT, 0, 4 * KIB, .bus = true },
	{ "auto", UMMAP_ENGINE_DEFAULT, UMMAP_KERNEL, 4 * KIB, .waits = true },
	{ "auto", UMMAP_ENGINE_DEFAULT, UMMAP_KERNEL, 2 * MIB, .waits = true },
	{ "auto", UMMAP_ENGINE_SEGV, 0, 4 * KIB, .waits = false },
	{ "auto", UMMAP_ENGINE_UFFD, 0, 2 * MIB, .waits = true },
	{ "segv", UMMAP_ENGINE_DEFAULT, 0, 4 * KIB, .waits = false },
	{ "segv", UMMAP_ENGINE_AUTO, 0, 4 * KIB, .bus = true },
	{ "segv", UMMAP_ENGINE_UFFD, 0, 64 * KIB, .waits = true },
	{ "uffd", UMMAP_ENGINE_DEFAULT, 0, 2 * MIB, .waits = true },
	{ "uffd", UMMAP_ENGINE_SEGV, 0, 4 * KIB, .waits = false },
	{ "uffd", UMMAP_ENGINE_AUTO, 0, 2 * MIB, .waits = false },
	{ "uffd", UMMAP_ENGINE_SIGBUS, 0, 2 * MIB, .bus = true },
	{ "sigbus", UMMAP_ENGINE_DEFAULT, 0, 2 * MIB, .bus = true },
	{ "sigbus", UMMAP_ENGINE_SEGV, 0, 4 * KIB, .waits = false },
	{ "sigbus", UMMAP_ENGINE_DEFAULT, UMMAP_KERNEL, 4 * KIB, .waits = true },
};

/* Asks the kernel instead of the library. */
static bool has_bus(void)
{
	struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } act;

	check(syscall(SYS_rt_sigaction, SIGBUS, NULL, &act, sizeof(act.mask)) == 0);
	return act.handler != NULL;
}

static void choose(void *arg)
{
	size_t i = *(size_t *)arg;
	struct ummap_attr attr = init;
	uint8_t *m;

	set_env("UMMAP_ENGINE", choices[i].variable);
	attr.engine = choices[i].engine;
	attr.flags = choices[i].flags;
	attr.seg_size = choices[i].seg;
	check(open_mem(&attr, &m) == 0);
	check(kernel_waits(m) == choices[i].waits, "choice %zu", i);
	check(has_bus() == choices[i].bus, "choice %zu", i);
	check(umunmap(m, 0) == 0);
}

Test(uffd, is_chosen)
{
	skip_unless_allowed();
	for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++)
		check_exits(run_child(choose, &i), 0);
}

static void bad_variable(void *arg)
{
	const char *const *pair = arg;
	uint8_t *m;

	set_env(pair[0], pair[1]);
	check_fails(open_mem(NULL, &m), EINVAL);
	check(strstr(umerrormsg(), pair[0]), "%s", umerrormsg());
}

Test(uffd, bad_values_are_refused)
{
	static const char *const bad[][2] = {
		{ "UMMAP_ENGINE", "" },
		{ "UMMAP_ENGINE", "UFFD" },
		{ "UMMAP_ENGINE", "userfaultfd" },
		{ "UMMAP_FAULT_THREADS", "0" },
		{ "UMMAP_FAULT_THREADS", "65" },
		{ "UMMAP_FAULT_THREADS", "many" },
	};
	struct ummap_attr attr = init;
	uint8_t *m;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_exits(run_child(bad_variable, (void *)bad[i]), 0);
	for (int engine = -1; engine <= UMMAP_ENGINE_SIGBUS + 1;
	     engine += UMMAP_ENGINE_SIGBUS + 2) {
		attr.engine = engine;
		check_fails(open_mem(&attr, &m), EINVAL);
	}
	attr.engine = UMMAP_ENGINE_SEGV;
	attr.flags = UMMAP_KERNEL;
	check_fails(open_mem(&attr, &m), EINVAL);
}

/* A program built without this field gets the default. */
Test(uffd, older_programs)
{
	struct ummap_attr attr = init;
	uint8_t *m;

	set_env("UMMAP_ENGINE", "segv");
	attr.engine = 99;
	attr.struct_size = offsetof(struct ummap_attr, engine);
	check(open_mem(&attr, &m) == 0);
	check(!kernel_waits(m));
	check(umunmap(m, 0) == 0);
}

/* ---- Rights ---- */

static void become_nobody(void)
{
	check(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 &&
	      setresuid(65534, 65534, 65534) == 0);
}

static void without_rights(void *unused)
{
	struct ummap_attr attr = init;
	uint8_t *m;

	(void)unused;
	become_nobody();
	attr.engine = UMMAP_ENGINE_AUTO;
	attr.flags = UMMAP_KERNEL;
	check_fails(open_mem(&attr, &m), EPERM);
	check(strstr(umerrormsg(), "CAP_SYS_PTRACE"), "%s", umerrormsg());
	/* The process's own accesses work, and the kernel may access pinned ranges. */
	attr.flags = 0;
	attr.engine = UMMAP_ENGINE_UFFD;
	attr.seg_size = SEG;
	check(open_mem(&attr, &m) == 0);
	fill(m, SIZE, 0, OLD);
	check(umsync(m, 1) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(umsync(m, 1) == 0);
	check(!kernel_waits(m));
	check(umpin(m, SIZE, READ_WRITE) == 0);
	check(kernel_waits(m));
	check(umunpin(m, SIZE) == 0);
	check_zeros(m, SEG);
	check(umunmap(m, 1) == 0);
}

Test(uffd, without_rights)
{
	FILE *f = fopen("/proc/sys/vm/unprivileged_userfaultfd", "re");
	int all = 1;

	skip_without_uffd();
	if (geteuid() != 0 || !f || fscanf(f, "%d", &all) != 1 || all)
		cr_skip_test("this process has no right that it could give up");
	fclose(f);
	check_exits(run_child(without_rights, NULL), 0);
}

static void forbid_userfaultfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };

	become_nobody();
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void forbidden(void *unused)
{
	struct ummap_attr attr = init;
	uint8_t *m;

	(void)unused;
	forbid_userfaultfd();
	attr.seg_size = SEG;
	attr.engine = UMMAP_ENGINE_UFFD;
	check_fails(open_mem(&attr, &m), EPERM);
	check(strstr(umerrormsg(), "userfaultfd"), "%s", umerrormsg());
	attr.engine = UMMAP_ENGINE_AUTO;
	check(open_mem(&attr, &m) == 0);
	fill(m, SIZE, 0, OLD);
	check_bytes(m, SIZE, 0, OLD);
	check(!kernel_waits(m + 4 * MIB));
	check(umunmap(m, 0) == 0);
}

Test(uffd, forbidden)
{
	if (geteuid() != 0)
		cr_skip_test("only root surely loses the right");
	check_exits(run_child(forbidden, NULL), 0);
}

/* ---- Loads that fail ---- */

static int told_error;
static void *told_addr;

static void note_error(void *addr, int error)
{
	told_addr = addr;
	told_error = error;
}

static uint8_t *map_failing(const char *keys)
{
	struct ummap_attr attr = init;
	char uri[96];
	void *addr;

	skip_without_uffd();
	snprintf(uri, sizeof(uri), "error+mem:8M?error.op=read&%s", keys);
	attr.engine = UMMAP_ENGINE_UFFD;
	attr.seg_size = SEG;
	check(ummap_open(uri, 8 * MIB, 0, READ_WRITE, &attr, &addr) == 0);
	check(umadvise(addr, 8 * MIB, UMMAP_ADV_RANDOM) == 0);
	return addr;
}

/* As with segv, each failed load raises one SIGBUS, and the next access tries again. */
Test(uffd, failed_loads_raise_sigbus)
{
	uint8_t *m = map_failing("error.nth=2&error.times=2&error.errno=ESTALE");
	uint64_t value = 1;

	catch_sigbus();
	check(umonerror(note_error) == 0);
	check(try_load(m, &value) && value == 0);
	check(!try_load(m + 3 * SEG + 40, &value));
	check(bus_info.si_addr == m + 3 * SEG + 40 && bus_info.si_code == BUS_ADRERR);
	check(told_addr == m + 3 * SEG + 40 && told_error == ESTALE);
	check(!try_store(m + 3 * SEG + 8, 7) && bus_info.si_addr == m + 3 * SEG + 8);
	check(try_store(m + 3 * SEG + 8, 7));
	check(try_load(m + 3 * SEG + 8, &value) && value == 7);
	check(stat_of(m).read_errors == 2);
	check(umunmap(m, 0) == 0);
}

static atomic_uint failed;

static void *touch_failing(void *m)
{
	uint64_t value;

	for (int i = 0; i < 16; i++)
		failed += !try_load((uint8_t *)m + (size_t)i * SEG, &value);
	return NULL;
}

/* Threads wait for the same load: each gets SIGBUS or the data of a later try. */
Test(uffd, threads_on_failed_loads)
{
	uint8_t *m = map_failing("error.times=always");
	pthread_t threads[4];
	uint64_t value;

	catch_sigbus();
	for (int t = 0; t < 4; t++)
		check(pthread_create(&threads[t], NULL, touch_failing, m) == 0);
	for (int t = 0; t < 4; t++)
		check(pthread_join(threads[t], NULL) == 0);
	check(failed == 64, "%u", failed);
	check(umunmap(m, 0) == 0);
	m = map_failing("error.nth=999999");
	check(try_load(m, &value));
	check(umunmap(m, 0) == 0);
}

static atomic_bool busy;

static void *keep_busy(void *unused)
{
	while (busy)
		;
	return unused;
}

/* Binds this thread and its future threads to the current processor. */
static void stay_here(void)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	check(sched_setaffinity(0, sizeof(here), &here) == 0);
}

/* The error is delivered to the thread that made the access, even if other threads run first. Only
 * a thread that gets no processor for more than a second may be too late: then the load is tried
 * again. */
Test(uffd, failed_loads_wait_for_slow_threads)
{
	uint8_t *m = map_failing("error.times=1000000000");
	double end = now() + 2.5;   /* the background thread runs twice */
	uint64_t value, heard = 0, late = 0, errors;
	pthread_t other;

	catch_sigbus();
	stay_here();
	busy = true;
	check(pthread_create(&other, NULL, keep_busy, NULL) == 0);
	check(sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }) == 0);
	while (now() < end) {
		double begun = now();

		check(!try_load(m, &value));
		heard++;
		late += (uint64_t)(now() - begun + 0.1);
	}
	busy = false;
	check(pthread_join(other, NULL) == 0);
	errors = stat_of(m).read_errors;
	check(errors >= heard && errors <= heard + late,
	      "%" PRIu64 " errors, %" PRIu64 " heard of, %" PRIu64 " may have been late", errors,
	      heard, late);
	check(umunmap(m, 0) == 0);
}

/* A system call cannot get the error, so it is tried again after a while. */
Test(uffd, failed_loads_of_the_kernel)
{
	uint8_t *m;
	double end = now() + 60;
	bool again = false;

	skip_unless_allowed();
	m = map_failing("error.nth=1");
	check(!kernel_waits(m));
	while (!again && now() < end) {
		pause_ms(20);
		again = kernel_waits(m);
	}
	check(again);
	check(umunmap(m, 0) == 0);
	/* With another access of the program, at once. */
	m = map_failing("error.nth=1");
	check(!kernel_waits(m));
	check(umpin(m, 1, PROT_READ) == 0);
	check(kernel_waits(m));
	check(umunpin(m, 1) == 0);
	check(umunmap(m, 0) == 0);
}

static void touch_for_ever(void *m)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	(void)*(volatile uint8_t *)m;
}

static void fail_in_child(void *unused)
{
	(void)unused;
	touch_for_ever(map_failing("error.times=always"));
}

Test(uffd, failed_loads_kill_by_default)
{
	skip_without_uffd();
	check_killed(run_child(fail_in_child, NULL), SIGBUS);
}

/* ---- Effects on the process ---- */

static uint8_t *map_uffd(int *fd)
{
	skip_without_uffd();
	set_env("UMMAP_ENGINE", "uffd");
	*fd = filled_file(SIZE, OLD);
	return map_file(*fd, SIZE, SEG, READ_WRITE, 0);
}

static atomic_uint signals_seen;

static void on_signal(int sig)
{
	(void)sig;
	signals_seen++;
}

/* The library's threads block all signals of the process. */
Test(uffd, threads_take_no_signals)
{
	uint8_t *m;
	sigset_t all;
	int fd;

	for (int sig = 1; sig < NSIG; sig++)
		if (sig != SIGSEGV && sig != SIGBUS && sig != SIGCHLD)
			signal(sig, on_signal);
	m = map_uffd(&fd);
	fill(m, SIZE, 0, NEW);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	check(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
	for (int i = 0; i < 1000; i++)
		check(kill(getpid(), i % 2 ? SIGUSR1 : SIGTERM) == 0);
	check(umsync(m, 1) == 0);
	check_bytes(m, SIZE, 0, NEW);
	check(signals_seen == 0);
	check(umunmap(m, 1) == 0);
}

static void be_a_child(void *m)
{
	uint8_t *own;
	uint64_t value;
	int fd;

	check(stat_of(NULL).mappings == 0);
	check(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
	own = map_uffd(&fd);
	check_bytes(own, SIZE, 0, OLD);
	fill(own, SIZE, 0, NEW);
	check(umunmap(own, 1) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	value = *(volatile uint64_t *)m;  /* the child does not have the mapping */
	exit(value != 0);
}

Test(uffd, forks)
{
	char *argv[] = { "true", NULL }, *env[] = { NULL };
	uint8_t *m;
	int fd, status;
	pid_t pid;

	m = map_uffd(&fd);
	for (int i = 0; i < 3; i++) {
		fill(m, SIZE / 2, 0, NEW);
		check_killed(run_child(be_a_child, m), SIGSEGV);
		check_bytes(m, SIZE / 2, 0, NEW);
		check_bytes(m + SIZE / 2, SIZE / 2, SIZE / 2, OLD);
		check(umsync(m, 1) == 0);
	}
	check(posix_spawnp(&pid, "true", NULL, NULL, argv, env) == 0);
	status = wait_child(pid);
	check_exits(status, 0);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE / 2, 0, NEW);
}

static void *serve_own(void *arg)
{
	int fd = *(int *)arg;
	uint8_t *page = aligned_alloc(4 * KIB, 4 * KIB);
	struct uffd_msg msg;

	memset(page, 0x77, 4 * KIB);
	while (read(fd, &msg, sizeof(msg)) == sizeof(msg)) {
		struct uffdio_copy copy = { .dst = msg.arg.pagefault.address & ~(4 * KIB - 1),
					    .src = (uintptr_t)page,
					    .len = 4 * KIB };

		check(ioctl(fd, UFFDIO_COPY, &copy) == 0);
	}
	return NULL;
}

/* The program uses its own userfaultfd at the same time. */
Test(uffd, beside_the_programs_own)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .range.len = SIZE, .mode = UFFDIO_REGISTER_MODE_MISSING };
	uint8_t *m, *own = mmap(NULL, SIZE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	int fd, theirs;

	skip_without_uffd();
	theirs = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	check(theirs >= 0 && ioctl(theirs, UFFDIO_API, &api) == 0);
	m = map_uffd(&fd);
	r.range.start = (uintptr_t)m;
	check(ioctl(theirs, UFFDIO_REGISTER, &r) == -1 && errno == EBUSY);
	r.range.start = (uintptr_t)own;
	check(ioctl(theirs, UFFDIO_REGISTER, &r) == 0);
	check(pthread_create(&thread, NULL, serve_own, &theirs) == 0);
	for (size_t at = 0; at < SIZE; at += SEG) {
		check(m[at] == pattern(at, OLD) && own[at] == 0x77);
		m[at] = own[at + 1];
	}
	check(umunmap(m, 1) == 0);
	check_file(fd, 1, SEG - 1, 1, OLD);
}

/* A thread that waits for a segment wakes up when the mapping ends. */
static void *wait_there(void *m)
{
	(void)*(volatile uint8_t *)m;
	return NULL;
}

static void unmap_under_a_thread(void *unused)
{
	struct ummap_attr attr = init;
	pthread_t thread;
	void *addr;

	(void)unused;
	attr.engine = UMMAP_ENGINE_UFFD;
	attr.seg_size = SEG;
	check(ummap_open("error+mem:1M?error.op=read&error.nth=9999&error.delay=200000", MIB, 0,
			 PROT_READ, &attr, &addr) == 0);
	check(pthread_create(&thread, NULL, wait_there, addr) == 0);
	pause_ms(20);
	check(umunmap(addr, 0) == 0);
	pthread_join(thread, NULL);
	exit(0);
}

Test(uffd, unmapping_wakes_who_waits)
{
	int status;

	skip_without_uffd();
	status = run_child(unmap_under_a_thread, NULL);
	check((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
		      (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV),
	      "wait status %#x", status);
}

#define MOVED (24 * SEG)

static struct {
	uint8_t *m;
	atomic_bool over;     /* the call that changes the mapping has returned */
	atomic_bool touched;  /* the thread has loaded all bytes */
} meanwhile;

static void *touch_meanwhile(void *unused)
{
	(void)unused;
	for (size_t i = 1; i < MOVED / SEG && !meanwhile.over; i++) {
		pause_ms(20);
		(void)((volatile uint8_t *)meanwhile.m)[i * SEG];
	}
	meanwhile.touched = true;
	return NULL;
}

/* A thread that accesses a mapping during a change waits for its end: here, contents move within
 * their file, and each write is slow. */
Test(uffd, waits_while_the_mapping_changes)
{
	void *moved = NULL;
	pthread_t thread;
	int fd;

	skip_without_uffd();
	set_env("UMMAP_ENGINE", "uffd");
	set_env("UMMAP_DRIVER", "error+posix:?error.op=write&error.nth=9999&error.delay=100000");
	fd = temp_file(2 * MOVED);
	meanwhile.m = map_file(fd, MOVED, SEG, READ_WRITE, 0);
	check(pthread_create(&thread, NULL, touch_meanwhile, NULL) == 0);
	check(umremap(meanwhile.m, 0, fd, SEG, 0, &moved) == 0 && moved == meanwhile.m);
	meanwhile.over = true;
	for (double end = now() + 60; !meanwhile.touched && now() < end;)
		pause_ms(10);
	check(meanwhile.touched, "the waiting thread is not woken");
	check(pthread_join(thread, NULL) == 0);
	check(umunmap(meanwhile.m, 0) == 0);
}

/* Any number of segments takes few VMAs. */
Test(uffd, segments_take_no_mappings)
{
	const size_t size = 64 * MIB;
	int fd = temp_file(size), before;
	uint8_t *m;

	skip_without_uffd();
	set_env("UMMAP_ENGINE", "uffd");
	m = map_file(fd, size, SEG, READ_WRITE, 0);
	m[0] = 1;
	before = count_maps();
	for (size_t at = 0; at < size; at += 2 * SEG)
		m[at] = 1;
	check(count_maps() - before < 64, "%d", count_maps() - before);
	check(umunmap(m, 0) == 0);
}
