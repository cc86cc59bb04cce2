/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver uring without the library: requests in flight, ends of files, more threads than rings,
 * forked children, and kernels that forbid io_uring, where ummap() must use another driver.
 */
#include "common.h"

#include <criterion/criterion.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ummap-driver.h>

extern const struct ummap_driver ummap_driver_uring;

#define BLOCK ((size_t)64 * KIB)
#define MAX_DEPTH 64 /* requests of one thread in flight */

static const struct ummap_driver *const uring = &ummap_driver_uring;

static void *open_fd(int fd, int oflags, const char *depth, struct ummap_geom *geom)
{
	struct ummap_key key = { "depth", depth };
	struct ummap_uri uri = { .scheme = "uring", .keys = &key, .nkeys = depth ? 1 : 0 };
	void *h = NULL;

	memset(geom, 0, sizeof(*geom));
	cr_assert_eq(uring->open_fd(&uri, fd, oflags, &h, geom), 0, "%s", geom->why);
	return h;
}

static uint8_t *memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

static void fill_pattern(uint8_t *at, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = pattern(i, seed);
}

/* Submits n requests and waits for them. Returns the largest number that one call accepted. */
static unsigned transfer_all(void *h, struct ummap_io *io, unsigned n)
{
	struct ummap_io *list[4 * MAX_DEPTH], *done[4 * MAX_DEPTH];
	unsigned sent = 0, back = 0, most = 0;

	for (unsigned i = 0; i < n; i++) {
		io[i].res = 77;
		list[i] = &io[i];
	}
	while (back < n) {
		int got = sent < n ? uring->submit(h, list + sent, n - sent) : 0;

		cr_assert(got >= 0 && (unsigned)got <= n - sent);
		sent += (unsigned)got;
		most = (unsigned)got > most ? (unsigned)got : most;
		got = uring->reap(h, done, 4 * MAX_DEPTH, 1);
		cr_assert(got > 0, "%d", got);
		back += (unsigned)got;
	}
	for (unsigned i = 0; i < n; i++)
		cr_expect_eq(io[i].res, 0, "request %u: %d", i, io[i].res);
	return most;
}

Test(uring, many_in_flight)
{
	const unsigned n = 3 * MAX_DEPTH;
	struct ummap_io *io = calloc(n, sizeof(*io));
	int fd = temp_file(n * BLOCK);
	uint8_t *buf = memory(n * BLOCK), *back = memory(n * BLOCK);
	struct ummap_geom geom;
	void *h = open_fd(fd, UMMAP_O_WRITE, NULL, &geom);

	cr_assert(geom.caps & UMMAP_CAP_ASYNC,
		  "the file system of the tests must support O_DIRECT");
	fill_pattern(buf, n * BLOCK, 3);
	for (unsigned i = 0; i < n; i++)
		io[i] = (struct ummap_io){
			.op = UMMAP_IO_WRITE, .buf = buf + i * BLOCK, .len = BLOCK, .off = i * BLOCK
		};
	cr_expect_eq(transfer_all(h, io, n), MAX_DEPTH);
	for (unsigned i = 0; i < n; i++)
		io[i] = (struct ummap_io){
			.op = UMMAP_IO_READ, .buf = back + i * BLOCK, .len = BLOCK, .off = i * BLOCK
		};
	transfer_all(h, io, n);
	cr_expect(memcmp(buf, back, n * BLOCK) == 0);
	cr_expect_eq(pread(fd, back, BLOCK, 5 * BLOCK), (ssize_t)BLOCK);
	cr_expect(memcmp(buf + 5 * BLOCK, back, BLOCK) == 0);
	cr_expect_eq(uring->close(h), 0);
	h = open_fd(fd, 0, "3", &geom);
	cr_expect_eq(transfer_all(h, io, n), 3, "a call must accept at most `depth` requests");
	cr_expect_eq(uring->close(h), 0);
	free(io);
}

/* Requests with unaligned offsets, lengths and memory, and at the end of the file, among aligned
 * ones. */
Test(uring, odd_ones_among_others)
{
	const size_t size = 10 * BLOCK + 777;
	int fd = temp_file(size);
	uint8_t *all = memory(16 * BLOCK), *buf = memory(16 * BLOCK);
	struct ummap_io io[6];
	struct ummap_geom geom;
	void *h = open_fd(fd, UMMAP_O_WRITE, NULL, &geom);

	fill_pattern(all, size, 9);
	cr_assert_eq(pwrite(fd, all, size, 0), (ssize_t)size);
	cr_assert_eq(fsync(fd), 0);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	memset(buf, 0xee, 16 * BLOCK);
	io[0] = (struct ummap_io){ .buf = buf, .len = 2 * BLOCK, .off = 0 };
	io[1] = (struct ummap_io){ .buf = buf + 2 * BLOCK, .len = 333, .off = 2 * BLOCK };
	io[2] = (struct ummap_io){ .buf = buf + 2 * BLOCK + 333,
				   .len = 2 * BLOCK - 333,
				   .off = 2 * BLOCK + 333 };
	io[3] = (struct ummap_io){ .buf = buf + 4 * BLOCK, .len = 4 * BLOCK, .off = 4 * BLOCK };
	io[4] = (struct ummap_io){ .buf = buf + 8 * BLOCK, .len = 4 * BLOCK, .off = 8 * BLOCK };
	io[5] = (struct ummap_io){ .buf = buf + 12 * BLOCK, .len = BLOCK, .off = 12 * BLOCK };
	transfer_all(h, io, 6);
	cr_expect(memcmp(buf, all, 13 * BLOCK) == 0,
		  "bytes behind the end of the file must be zeros");
	cr_expect_eq(buf[13 * BLOCK], 0xee);
	cr_expect_eq(uring->close(h), 0);
}

Test(uring, errors_come_back)
{
	int fd = temp_file(4 * BLOCK);
	struct ummap_geom geom;
	void *h = open_fd(fd, 0, NULL, &geom);
	struct ummap_io io = { .op = UMMAP_IO_WRITE, .buf = memory(BLOCK), .len = BLOCK };
	struct ummap_io *list = &io, *done;

	cr_assert_eq(uring->submit(h, &list, 1), 1);
	cr_assert_eq(uring->reap(h, &done, 1, 1), 1);
	cr_expect_eq(done, &io);
	cr_expect_eq(io.res, -EBADF, "a write by a read-only handle returned %d", io.res);
	cr_expect_eq(uring->reap(h, &done, 1, 1), 0, "reap without a request must return 0");
	cr_expect_eq(uring->close(h), 0);
}

Test(uring, depth_is_checked)
{
	static const char *const bad[] = { "0", "65", "", "x", "4x", "-1", "99999999999999999999" };
	int fd = temp_file(BLOCK);

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ummap_key key = { "depth", bad[i] };
		struct ummap_uri uri = { .scheme = "uring", .keys = &key, .nkeys = 1 };
		struct ummap_geom geom = { 0 };
		void *h;

		cr_expect_eq(uring->open_fd(&uri, fd, 0, &h, &geom), -EINVAL);
		cr_expect(strstr(geom.why, "depth"), "%s", geom.why);
	}
}

Test(uring, closed_with_requests_in_flight)
{
	int fd = temp_file(16 * BLOCK);
	uint8_t *buf = memory(16 * BLOCK);
	struct ummap_io io[16], *list[16];
	struct ummap_geom geom;

	for (int round = 0; round < 50; round++) {
		void *h = open_fd(fd, 0, NULL, &geom);

		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		for (unsigned i = 0; i < 16; i++) {
			io[i] = (struct ummap_io){ .buf = buf + i * BLOCK,
						   .len = BLOCK,
						   .off = i * BLOCK };
			list[i] = &io[i];
		}
		cr_assert_eq(uring->submit(h, list, 16), 16);
		cr_expect_eq(uring->close(h), 0);
		memset(buf, 0x5a, 16 * BLOCK);
		usleep(2000);
		for (size_t i = 0; i < 16 * BLOCK; i += 511)
			cr_assert_eq(buf[i], 0x5a, "the kernel wrote to memory after close");
	}
}

/* ---- More threads than rings ---- */

static void *crowd_h;
static pthread_barrier_t crowd;
static _Atomic unsigned without;

static void *hold_a_ring(void *mem)
{
	struct ummap_io io = { .buf = mem, .len = BLOCK }, *list = &io, *done;
	int got = uring->submit(crowd_h, &list, 1);

	without += got == 0;
	pthread_barrier_wait(&crowd);
	if (got == 1)
		cr_expect(uring->reap(crowd_h, &done, 1, 1) == 1 && io.res == 0);
	else
		cr_expect_eq(uring->reap(crowd_h, &done, 1, 1), 0);
	return NULL;
}

Test(uring, more_threads_than_rings)
{
	enum { THREADS = 40 };
	int fd = temp_file(BLOCK);
	uint8_t *buf = memory(THREADS * BLOCK);
	pthread_t thread[THREADS];
	struct ummap_geom geom;

	crowd_h = open_fd(fd, 0, NULL, &geom);
	for (int round = 0; round < 2; round++) {
		without = 0;
		pthread_barrier_init(&crowd, NULL, THREADS);
		for (int i = 0; i < THREADS; i++)
			cr_assert_eq(pthread_create(&thread[i], NULL, hold_a_ring, buf + i * BLOCK),
				     0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(thread[i], NULL);
		cr_expect(without > 0 && without < THREADS, "%u", without);
	}
	cr_expect_eq(uring->close(crowd_h), 0);
}

/* Mappings work with more threads than rings. */
static void *scan(void *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < 64; i++)
		sum += ((volatile uint8_t *)m)[i * BLOCK];
	return (void *)(uintptr_t)sum;
}

Test(uring, mapping_with_more_threads_than_rings)
{
	enum { THREADS = 40, COPIES = THREADS };
	int fd = temp_file((size_t)COPIES * 64 * BLOCK);
	pthread_t thread[THREADS];
	uint8_t one = 1;
	void *addr, *sum;

	for (size_t i = 0; i < COPIES * 64; i++)
		cr_assert_eq(pwrite(fd, &one, 1, (off_t)(i * BLOCK)), 1);
	cr_assert_eq(fsync(fd), 0);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	setenv("UMMAP_MEM_LIMIT", "16M", 1);
	cr_assert_eq(ummap((size_t)COPIES * 64 * BLOCK, BLOCK, PROT_READ, fd, 0, -1, 1, 0, &addr),
		     0, "%s", umerrormsg());
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, scan,
					    (uint8_t *)addr + (size_t)i * 64 * BLOCK),
			     0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &sum);
		cr_expect_eq((uintptr_t)sum, 64);
	}
	cr_expect_eq(umunmap(addr, 0), 0);
}

/* ---- Fork ---- */

static void use_in_child(void *h)
{
	struct ummap_geom geom;
	uint8_t *buf = memory(2 * BLOCK);
	int fd = temp_file(2 * BLOCK);
	struct ummap_io io[2] = {
		{ .op = UMMAP_IO_WRITE, .buf = buf, .len = BLOCK },
		{ .op = UMMAP_IO_WRITE, .buf = buf, .len = BLOCK, .off = BLOCK }
	};
	void *own = open_fd(fd, UMMAP_O_WRITE, NULL, &geom);

	memset(buf, 7, 2 * BLOCK);
	transfer_all(own, io, 2);
	check(pread(fd, buf + BLOCK, BLOCK, BLOCK) == (ssize_t)BLOCK && buf[BLOCK] == 7);
	check(uring->close(own) == 0);
	check(uring->close(h) == 0);
}

Test(uring, forked_child)
{
	int fd = temp_file(8 * BLOCK);
	struct ummap_geom geom;
	void *h = open_fd(fd, 0, NULL, &geom);
	struct ummap_io io[8];

	for (unsigned i = 0; i < 8; i++)
		io[i] = (struct ummap_io){ .buf = memory(BLOCK), .len = BLOCK, .off = i * BLOCK };
	transfer_all(h, io, 8);
	check_exits(run_child(use_in_child, h), 0);
	transfer_all(h, io, 8);
	cr_expect_eq(uring->close(h), 0);
}

/* ---- Kernels that forbid io_uring ---- */

static void forbid(long call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void without_io_uring(void *call)
{
	int fd = temp_file(4 * BLOCK), log[2];
	char said[4096] = "", path[64];
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr = NULL;

	forbid((long)(intptr_t)call);
	unsetenv("UMMAP_DRIVER");
	setenv("UMMAP_LOG", "info", 1);
	check(pipe(log) == 0 && dup2(log[1], 2) == 2);
	check(ummap(4 * BLOCK, BLOCK, PROT_READ | PROT_WRITE, fd, 0, -1, 1, 0, &addr) == 0, "%s",
	      umerrormsg());
	*(uint8_t *)addr = 42;
	check(umsync(addr, 0) == 0);
	check(umunmap(addr, 0) == 0);
	check(read(log[0], said, sizeof(said) - 1) > 0);
	check(strstr(said, "cannot use io_uring") && strstr(said, "posix"), "%s", said);
	snprintf(path, sizeof(path), "uring:/proc/self/fd/%d", fd);
	check(ummap_open(path, BLOCK, 0, PROT_READ, &attr, &addr) == -1 && errno == EOPNOTSUPP,
	      "%d", errno);
	check(strstr(umerrormsg(), "cannot use io_uring") &&
		      strstr(umerrormsg(), "kernel.io_uring_disabled"),
	      "%s", umerrormsg());
}

/* A sandbox that forbids the calls after the opening. */
static void forbidden_later(void *unused)
{
	int fd = temp_file(8 * BLOCK);
	struct ummap_geom geom;
	void *h = open_fd(fd, UMMAP_O_WRITE, NULL, &geom);
	struct ummap_io io[8];

	(void)unused;
	for (unsigned i = 0; i < 8; i++)
		io[i] = (struct ummap_io){
			.buf = memory(BLOCK), .len = BLOCK, .off = i * BLOCK, .op = UMMAP_IO_WRITE
		};
	transfer_all(h, io, 4);
	forbid(SYS_io_uring_enter);
	for (unsigned i = 0; i < 8; i++)
		memset(io[i].buf, (int)i + 1, BLOCK);
	transfer_all(h, io, 8);
	for (unsigned i = 0; i < 8; i++) {
		uint8_t byte;

		check(io[i].res == 0 && pread(fd, &byte, 1, i * BLOCK) == 1 && byte == i + 1);
		io[i].op = UMMAP_IO_READ;
		memset(io[i].buf, 0, BLOCK);
	}
	transfer_all(h, io, 8);
	for (unsigned i = 0; i < 8; i++)
		check(io[i].res == 0 && *(uint8_t *)io[i].buf == i + 1);
	check(uring->close(h) == 0);
}

Test(uring, forbidden)
{
	check_exits(run_child(without_io_uring, (void *)(intptr_t)SYS_io_uring_setup), 0);
	check_exits(run_child(without_io_uring, (void *)(intptr_t)SYS_io_uring_enter), 0);
	check_exits(run_child(forbidden_later, NULL), 0);
}
