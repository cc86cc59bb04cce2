/* SPDX-License-Identifier: BSD-3-Clause */
/* io_uring on mappings: requests on absent ranges, and registered buffers, whose pages the kernel
 * holds. Both work with uffd; with segv, unpinned ranges fail. */
#include <criterion/criterion.h>
#include <liburing.h>

#include "common.h"

#define SEG (4 * KIB)
#define SIZE (2 * MIB)
#define BUDGET (64 * SEG)
#define LEN (32 * SEG)
#define OLD 1
#define NEW 2
#define LATER 3

static int data_fd, other_fd;
static struct io_uring ring;

static uint8_t *start(unsigned engine)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *addr = NULL;

	set_budget(BUDGET);
	data_fd = filled_file(SIZE, OLD);
	other_fd = temp_file(LEN);
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", data_fd);
	attr.seg_size = SEG;
	attr.flags = engine == UMMAP_ENGINE_UFFD ? UMMAP_KERNEL : 0;
	attr.engine = engine;
	if (io_uring_queue_init(8, &ring, 0) < 0)
		cr_skip_test("io_uring is forbidden here");
	if (ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0)
		return addr;
	check(errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP);
	cr_skip_test("userfaultfd may not see accesses by the kernel here");
	return NULL;
}

/* Runs one request. Returns its result. */
static int run_request(void (*prepare)(struct io_uring_sqe *, uint8_t *), uint8_t *at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct io_uring_cqe *cqe;
	int res;

	prepare(sqe, at);
	check(io_uring_submit(&ring) == 1);
	check(io_uring_wait_cqe(&ring, &cqe) == 0);
	res = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	return res;
}

static void read_to(struct io_uring_sqe *sqe, uint8_t *at)
{
	io_uring_prep_read(sqe, other_fd, at, LEN, 0);
}

static void write_from(struct io_uring_sqe *sqe, uint8_t *at)
{
	io_uring_prep_write(sqe, other_fd, at, LEN, 0);
}

/* A request that a thread of the kernel executes. */
static void read_elsewhere(struct io_uring_sqe *sqe, uint8_t *at)
{
	read_to(sqe, at);
	sqe->flags |= IOSQE_ASYNC;
}

static void read_fixed(struct io_uring_sqe *sqe, uint8_t *at)
{
	io_uring_prep_read_fixed(sqe, other_fd, at, LEN, 0, 0);
}

static void load_all(uint8_t *m, size_t from)
{
	for (size_t at = from; at < SIZE; at += SEG)
		(void)*(volatile uint8_t *)(m + at);
}

Test(uffd_uring, requests_on_absent_ranges)
{
	uint8_t *m = start(UMMAP_ENGINE_UFFD);

	for (size_t at = 0; at + 3 * LEN <= SIZE; at += 3 * LEN) {
		check(umsync(m, 1) == 0);
		check(run_request(write_from, m + at) == LEN);
		check_file(other_fd, 0, LEN, at, OLD);
		file_fill(other_fd, 0, LEN, at, NEW);
		check(umsync(m, 1) == 0);
		check(run_request(read_to, m + at) == LEN);
		check(umsync(m, 1) == 0);
		check(run_request(read_elsewhere, m + at + LEN) == LEN);
		check_bytes(m + at, LEN, at, NEW);
		check_bytes(m + at + LEN, LEN, at, NEW);
	}
	check(umunmap(m, 1) == 0);
	check_file(data_fd, 0, LEN, 0, NEW);
	io_uring_queue_exit(&ring);
}

/* The kernel may store to registered buffers at any time without a fault. No sync or eviction loses
 * the data. */
Test(uffd_uring, registered_buffers)
{
	uint8_t *m = start(UMMAP_ENGINE_UFFD);
	struct iovec iov = { m, LEN };

	check(io_uring_register_buffers(&ring, &iov, 1) == 0);
	for (uint64_t seed = NEW; seed <= LATER; seed++) {
		load_all(m, LEN);
		check(umsync(m, 1) == 0);
		file_fill(other_fd, 0, LEN, 0, seed);
		check(run_request(read_fixed, m) == LEN);
		load_all(m, LEN);
		check_bytes(m, LEN, 0, seed);
		check(umsync(m, 0) == 0);
		check_file(data_fd, 0, LEN, 0, seed);
	}
	file_fill(other_fd, 0, LEN, 0, OLD);
	check(run_request(read_fixed, m) == LEN);
	check(io_uring_unregister_buffers(&ring) == 0);
	load_all(m, LEN);
	check(umunmap(m, 1) == 0);
	check_file(data_fd, 0, SIZE, 0, OLD);
	io_uring_queue_exit(&ring);
}

/* With segv, the kernel cannot load segments: a request on an unpinned range fails and changes
 * nothing. */
Test(uffd_uring, needs_pins_with_segv)
{
	uint8_t *m = start(UMMAP_ENGINE_SEGV);
	struct iovec iov = { m, LEN };

	file_fill(other_fd, 0, LEN, 0, NEW);
	check(run_request(read_to, m) == -EFAULT && run_request(write_from, m) == -EFAULT);
	check(io_uring_register_buffers(&ring, &iov, 1) == -EFAULT);
	check_bytes(m, LEN, 0, OLD);
	check(run_request(read_to, m) == -EFAULT);  /* a resident segment is not enough */
	check(umsync(m, 1) == 0 && umpin(m, LEN, READ_WRITE) == 0);
	check(run_request(read_to, m) == LEN);
	check(io_uring_register_buffers(&ring, &iov, 1) == 0);
	file_fill(other_fd, 0, LEN, 0, LATER);
	check(run_request(read_fixed, m) == LEN);
	check(io_uring_unregister_buffers(&ring) == 0);
	check(umunpin(m, LEN) == 0 && umunmap(m, 1) == 0);
	check_file(data_fd, 0, LEN, 0, LATER);
	io_uring_queue_exit(&ring);
}
