/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accesses of the kernel and of other processes to a mapping with the engine uffd: each kind of
 * system call on absent, clean, dirty and evicted ranges, and other processes during evictions.
 */
#include <criterion/criterion.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "common.h"

#define SEG (4 * KIB)
#define SIZE (4 * MIB)
#define BUDGET (64 * SEG)
#define LEN (24 * SEG)  /* length of a system call, which fits into a socket or pipe */
#define OLD 1
#define NEW 2

static int data_fd;     /* the mapping's file */

/* Maps the file by a URI with %d for its descriptor, for accesses by the kernel. Skips the test if
 * the system does not permit this. */
static uint8_t *map_kernel_by(const char *format, size_t seg, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[160];
	void *addr = NULL;

	set_budget(BUDGET);
	data_fd = filled_file(SIZE, OLD);
	snprintf(uri, sizeof(uri), format, data_fd);
	attr.seg_size = seg;
	attr.flags = UMMAP_KERNEL;
	attr.engine = UMMAP_ENGINE_UFFD;
	if (ummap_open(uri, SIZE, 0, prot, &attr, &addr) == 0)
		return addr;
	check(errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP);
	cr_skip_test("userfaultfd may not see accesses by the kernel here");
	return NULL;
}

static uint8_t *map_kernel(size_t seg, int prot)
{
	return map_kernel_by("posix:/proc/self/fd/%d", seg, prot);
}

static void evict_all(uint8_t *m)
{
	check(umsync(m, 1) == 0);
	check(stat_of(m).resident_bytes == 0);
}

/* ---- States before the call ---- */

static void absent(uint8_t *m, size_t at)
{
	(void)at;
	evict_all(m);
}

static void unchanged(uint8_t *m, size_t at)
{
	evict_all(m);
	check_bytes(m + at, LEN, at, OLD);
}

/* Stores the same values, which makes the segments dirty. */
static void changed(uint8_t *m, size_t at)
{
	evict_all(m);
	fill(m + at, LEN, at, OLD);
}

static void written(uint8_t *m, size_t at)
{
	changed(m, at);
	check(umsync(m, 0) == 0);
}

static void evicted(uint8_t *m, size_t at)
{
	changed(m, at);
	for (size_t off = 0; off < SIZE; off += SEG)
		if (off < at || off >= at + LEN)
			(void)*(volatile uint8_t *)(m + off);
}

static void half(uint8_t *m, size_t at)
{
	evict_all(m);
	fill(m + at + LEN / 2, LEN / 4, at + LEN / 2, OLD);
}

static const struct {
	const char *name;
	void (*make)(uint8_t *m, size_t at);
} states[] = {
	{ "absent", absent },   { "unchanged", unchanged }, { "changed", changed },
	{ "written", written }, { "evicted", evicted },     { "half of it changed", half },
};

/* ---- Calls that move LEN bytes from or to the mapping ---- */

static int other_fd;                 /* a file of LEN bytes */
static int sockets[2];
static uint8_t *plain;               /* LEN bytes of ordinary memory */

static struct iovec *split(uint8_t *at, struct iovec iov[2])
{
	iov[0] = (struct iovec){ at, LEN / 3 };
	iov[1] = (struct iovec){ at + LEN / 3, LEN - LEN / 3 };
	return iov;
}

static ssize_t do_write(uint8_t *at)
{
	return lseek(other_fd, 0, SEEK_SET) ? -1 : write(other_fd, at, LEN);
}

static ssize_t do_pwrite(uint8_t *at)
{
	return pwrite(other_fd, at, LEN, 0);
}

static ssize_t do_writev(uint8_t *at)
{
	struct iovec iov[2];

	return lseek(other_fd, 0, SEEK_SET) ? -1 : writev(other_fd, split(at, iov), 2);
}

static ssize_t do_pwritev(uint8_t *at)
{
	struct iovec iov[2];

	return pwritev(other_fd, split(at, iov), 2, 0);
}

static ssize_t to_file(ssize_t got)
{
	return got == LEN ? pread(other_fd, plain, LEN, 0) : got;
}

static ssize_t do_send(uint8_t *at)
{
	ssize_t got = send(sockets[0], at, LEN, 0);

	return got == LEN ? recv(sockets[1], plain, LEN, MSG_WAITALL) : got;
}

static ssize_t do_sendmsg(uint8_t *at)
{
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = split(at, iov), .msg_iovlen = 2 };
	ssize_t got = sendmsg(sockets[0], &msg, 0);

	return got == LEN ? recv(sockets[1], plain, LEN, MSG_WAITALL) : got;
}

static ssize_t do_vm_read(uint8_t *at)
{
	struct iovec here = { plain, LEN }, there = { at, LEN };

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0);
}

static ssize_t file_write(uint8_t *at) { return to_file(do_write(at)); }
static ssize_t file_pwrite(uint8_t *at) { return to_file(do_pwrite(at)); }
static ssize_t file_writev(uint8_t *at) { return to_file(do_writev(at)); }
static ssize_t file_pwritev(uint8_t *at) { return to_file(do_pwritev(at)); }

/* In the other direction: other_fd has the data, and so does `plain`. */
static ssize_t do_read(uint8_t *at)
{
	return lseek(other_fd, 0, SEEK_SET) ? -1 : read(other_fd, at, LEN);
}

static ssize_t do_pread(uint8_t *at)
{
	return pread(other_fd, at, LEN, 0);
}

static ssize_t do_readv(uint8_t *at)
{
	struct iovec iov[2];

	return lseek(other_fd, 0, SEEK_SET) ? -1 : readv(other_fd, split(at, iov), 2);
}

static ssize_t do_preadv(uint8_t *at)
{
	struct iovec iov[2];

	return preadv(other_fd, split(at, iov), 2, 0);
}

static ssize_t do_recv(uint8_t *at)
{
	ssize_t got = send(sockets[0], plain, LEN, 0);

	return got == LEN ? recv(sockets[1], at, LEN, MSG_WAITALL) : got;
}

static ssize_t do_recvmsg(uint8_t *at)
{
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = split(at, iov), .msg_iovlen = 2 };
	ssize_t got = send(sockets[0], plain, LEN, 0);

	return got == LEN ? recvmsg(sockets[1], &msg, MSG_WAITALL) : got;
}

static ssize_t do_vm_write(uint8_t *at)
{
	struct iovec here = { plain, LEN }, there = { at, LEN };

	return process_vm_writev(getpid(), &here, 1, &there, 1, 0);
}

static const struct call {
	const char *name;
	ssize_t (*move)(uint8_t *at);
	bool stores;
} calls[] = {
	{ "write", file_write, false },
	{ "pwrite", file_pwrite, false },
	{ "writev", file_writev, false },
	{ "pwritev", file_pwritev, false },
	{ "send", do_send, false },
	{ "sendmsg", do_sendmsg, false },
	{ "process_vm_readv", do_vm_read, false },
	{ "read", do_read, true },
	{ "pread", do_pread, true },
	{ "readv", do_readv, true },
	{ "preadv", do_preadv, true },
	{ "recv", do_recv, true },
	{ "recvmsg", do_recvmsg, true },
	{ "process_vm_writev", do_vm_write, true },
};

static void prepare_others(void)
{
	int bytes = 4 * LEN;

	other_fd = temp_file(LEN);
	plain = malloc(LEN);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	for (int i = 0; i < 2; i++)
		check(setsockopt(sockets[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
}

static void call_on(uint8_t *m, const struct call *c, size_t at)
{
	uint64_t seed = c->stores ? NEW : OLD;

	fill(plain, LEN, at, NEW);
	if (c->stores)
		file_fill(other_fd, 0, LEN, at, NEW);
	check(c->move(m + at) == LEN, "%s", c->name);
	if (!c->stores)
		check_bytes(plain, LEN, at, OLD);
	check_bytes(m + at, LEN, at, seed);
	/* A store of the kernel is a change like any other. */
	evict_all(m);
	check_file(data_fd, at, LEN, at, seed);
	check_bytes(m + at, LEN, at, seed);
	fill(m + at, LEN, at, OLD);
}

Test(uffd_kernel, system_calls_that_move_bytes)
{
	uint8_t *m = map_kernel(SEG, READ_WRITE);

	prepare_others();
	for (size_t s = 0; s < sizeof(states) / sizeof(*states); s++) {
		for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
			size_t at = (s * 37 + c * 53) % 900 * SEG + 123;

			states[s].make(m, at);
			call_on(m, &calls[c], at);
		}
	}
	check(umunmap(m, 1) == 0);
	check_file(data_fd, 0, SIZE, 0, OLD);
}

/* ---- Calls whose arguments are in the mapping, each in an absent segment ---- */

static uint8_t *fresh_place(uint8_t *m)
{
	static size_t next;

	next += SEG;
	return m + next + SEG -
	       64; /* long arguments continue in the next segment, which is absent */
}

Test(uffd_kernel, arguments_in_the_mapping)
{
	uint8_t *m = map_kernel(SEG, READ_WRITE);
	struct epoll_event event = { .events = EPOLLIN };
	struct timespec *time;
	struct pollfd *one;
	int *fds, epoll = epoll_create1(EPOLL_CLOEXEC), wanted;
	struct utsname name;
	char here[256], *text;
	struct stat *st;
	uint32_t *word;

	evict_all(m);
	text = (char *)fresh_place(m);
	check(syscall(SYS_getcwd, text, 256) > 0 && strcmp(text, getcwd(here, sizeof(here))) == 0);
	check(syscall(SYS_uname, fresh_place(m)) == 0 && uname(&name) == 0);
	time = (struct timespec *)fresh_place(m);
	check(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, time) == 0 && time->tv_nsec < 1000000000);
	*time = (struct timespec){ 0, 1000 };
	evict_all(m);
	check(syscall(SYS_nanosleep, time, NULL) == 0);
	fds = (int *)fresh_place(m);
	check(pipe2(fds, O_CLOEXEC) == 0 && write(fds[1], "x", 1) == 1);
	event.data.fd = wanted = fds[0];
	check(epoll_ctl(epoll, EPOLL_CTL_ADD, wanted, &event) == 0);
	check(epoll_wait(epoll, (struct epoll_event *)fresh_place(m), 1, 1000) == 1);
	one = (struct pollfd *)fresh_place(m);
	*one = (struct pollfd){ .fd = wanted, .events = POLLIN };
	evict_all(m);
	check(poll(one, 1, 1000) == 1 && one->revents == POLLIN);
	st = (struct stat *)fresh_place(m);
	check(fstat(data_fd, st) == 0 && st->st_size == SIZE);
	word = (uint32_t *)fresh_place(m);
	check(syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0) == -1);
	check(errno == EAGAIN || *word == 1);
	check(syscall(SYS_futex, fresh_place(m), FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0);
	text = (char *)fresh_place(m);
	strcpy(text, "/proc/self/exe");
	evict_all(m);
	check(access(text, R_OK) == 0);
	check(readlink(text, (char *)fresh_place(m), 64) > 0);
	check(umunmap(m, 0) == 0);
}

/* ---- Requests that hold pages, to which the kernel stores later with any access rights ---- */

/* More bytes at a time than the budget: no segment may be evicted before the kernel has stored. */
Test(uffd_kernel, direct_reads_of_more_than_the_budget)
{
	const size_t len = 8 * BUDGET;
	uint8_t *m = map_kernel(SEG, READ_WRITE);
	int fd = filled_file(len, NEW), direct;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (direct < 0)
		cr_skip_test("no O_DIRECT here");
	check(pread(direct, m, len, 0) == (ssize_t)len);
	check_bytes(m, len, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(data_fd, 0, len, 0, NEW);
	check_file(data_fd, len, SIZE - len, len, OLD);
}

static void store_from_outside(void *base)
{
	uint8_t *buf = malloc(SIZE);
	struct iovec here = { buf, SIZE }, there = { base, SIZE };

	fill(buf, SIZE, 0, NEW);
	check(process_vm_writev(getppid(), &here, 1, &there, 1, 0) == (ssize_t)SIZE);
	memset(buf, 0, SIZE);
	check(process_vm_readv(getppid(), &here, 1, &there, 1, 0) == (ssize_t)SIZE);
	check_bytes(buf, SIZE, 0, NEW);
	free(buf);
}

/* Ends, because the kernel needs several pages at once, and may not get them on a busy machine
 * while all are evicted again and again. */
static void *sync_often(void *m)
{
	for (int round = 0; round < 1000; round++)
		check(umsync(m, 1) == 0);
	return NULL;
}

/* Another process stores everything in one call, while the owner syncs and evicts. */
Test(uffd_kernel, others_store_while_the_owner_evicts)
{
	for (size_t seg = SEG; seg <= 64 * KIB; seg *= 16) {
		uint8_t *m = map_kernel(seg, READ_WRITE);
		pthread_t thread;

		check(pthread_create(&thread, NULL, sync_often, m) == 0);
		check_exits(run_child(store_from_outside, m), 0);
		check(pthread_join(thread, NULL) == 0);
		check_bytes(m, SIZE, 0, NEW);
		check(umunmap(m, 1) == 0);
		check_file(data_fd, 0, SIZE, 0, NEW);
		close(data_fd);
	}
}

#define WRITERS 3
#define RECORDS (SIZE / 8 / WRITERS)

struct outside {
	uint8_t *base;
	unsigned number;
	uint32_t *versions;   /* lowest version of each record, in shared memory */
};

/* Checks each record of its own, between those of others, and stores the next version. */
static void work_outside(void *arg)
{
	struct outside *o = arg;
	uint64_t random = o->number;
	double end = now() + 2;

	while (now() < end) {
		size_t record = next_random(&random) % RECORDS, at = record * WRITERS + o->number;
		uint64_t value = 0, next = at << 32 | (o->versions[at] + 1);
		struct iovec here = { &value, 8 }, there = { o->base + at * 8, 8 };

		check(process_vm_readv(getppid(), &here, 1, &there, 1, 0) == 8);
		check((uint32_t)value == o->versions[at],
		      "%#" PRIx64 " at %zu, not version %" PRIu32, value, at, o->versions[at]);
		value = next;
		check(process_vm_writev(getppid(), &here, 1, &there, 1, 0) == 8);
		o->versions[at]++;
	}
}

Test(uffd_kernel, many_processes_on_small_records)
{
	uint8_t *m = map_kernel(SEG, READ_WRITE);
	struct outside o[WRITERS];
	pid_t pids[WRITERS];
	pthread_t thread;
	uint32_t *versions = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	memset(m, 0, SIZE);
	check(pthread_create(&thread, NULL, sync_often, m) == 0);
	for (unsigned i = 0; i < WRITERS; i++) {
		o[i] = (struct outside){ m, i, versions };
		pids[i] = start_child(work_outside, &o[i]);
	}
	for (unsigned i = 0; i < WRITERS; i++)
		check_exits(wait_child(pids[i]), 0);
	check(pthread_join(thread, NULL) == 0);
	check(umunmap(m, 1) == 0);
	for (size_t i = 0; i < RECORDS * WRITERS; i++) {
		uint64_t value;

		check(pread(data_fd, &value, 8, i * 8) == 8);
		check((uint32_t)value == versions[i], "%#" PRIx64 " at %zu, not version %" PRIu32,
		      value, i, versions[i]);
	}
}

/* ---- Read-only mappings ---- */

Test(uffd_kernel, cannot_store_where_the_program_cannot)
{
	uint8_t *m = map_kernel(SEG, PROT_READ);
	int fd = temp_file(LEN);

	for (int there = 0; there < 2; there++) {
		check(pread(fd, m, LEN, 0) == -1 && errno == EFAULT);
		check(pwrite(fd, m, LEN, 0) == LEN);
		check_file(fd, 0, LEN, 0, OLD);
		check(stat_of(m).dirty_bytes == 0);
	}
	check_bytes(m, SIZE, 0, OLD);
	evict_all(m);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 1) == 0);
}

/* A load of a system call has failed and blocked its segment. A switch drops a segment that became
 * inactive meanwhile. */
static void read_while_the_owner_evicts(void *arg)
{
	for (int round = 0; round < 40; round++) {
		uint8_t *copy = malloc(SIZE);
		struct iovec here = { copy, SIZE }, there = { arg, SIZE };

		check(copy && process_vm_readv(getppid(), &here, 1, &there, 1, 0) == (ssize_t)SIZE);
		check_bytes(copy, SIZE, 0, OLD);
		free(copy);
	}
}

/* The kernel and another process read a mapping whose faults bring in neighbors. */
Test(uffd_kernel, transfer_size_is_found)
{
	uint8_t *m = map_kernel(UMMAP_SEG_AUTO, PROT_READ);
	int fd = temp_file(0);
	uint64_t random = 1;
	pid_t pid = start_child(read_while_the_owner_evicts, m);

	check(write(fd, m, SIZE) == (ssize_t)SIZE);
	check_file(fd, 0, SIZE, 0, OLD);
	for (int i = 0; i < 20000; i++) {
		size_t at = next_random(&random) % (SIZE / SEG) * SEG;

		check(m[at] == pattern(at, OLD));
	}
	check_exits(wait_child(pid), 0);
	check(stat_of(m).resident_bytes + stat_of(m).inactive_bytes <= BUDGET);
}

Test(uffd_kernel, switches_where_a_load_has_failed)
{
	uint8_t *m = map_kernel_by(
		"error+posix:/proc/self/fd/%d?error.op=read&error.nth=1&error.errno=EIO", SEG,
		PROT_READ);
	int to = filled_file(SIZE, NEW), ends[2];
	void *base = NULL;
	double end = now() + 60;

	check(pipe(ends) == 0);
	check(write(ends[1], m, 4096) == -1 && errno == EFAULT);
	/* It may be let go of again, where others want memory. */
	/* Other loads may evict the segment again. */
	do {
		check(now() < end, "the segment is not loaded");
		check(umadvise(m, SEG, UMMAP_ADV_WILLNEED) == 0);
		pause_ms(2);
	} while (stat_of(m).inactive_bytes == 0);
	check(umremap(m, 0, to, 0, UMMAP_SWITCH, &base) == 0, "%s", umerrormsg());
	check_bytes(m, SIZE, 0, NEW);
	check(umunmap(m, 0) == 0);
}
