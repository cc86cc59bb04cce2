/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels before Linux 6.8, whose userfaultfd has no UFFDIO_MOVE, which this test hides. The
 * library refuses UMMAP_KERNEL and the engine uffd. The other engines keep all data that the kernel
 * stores to pinned ranges.
 */
#include <criterion/criterion.h>
#include <sys/uio.h>

#include "common.h"
/* A replacement of ioctl(3), which the library calls, too. */
#include "tests/kernels/no_move.c"

#define SEG (64 * KIB)
#define BUDGET (16 * SEG)
#define SIZE (8 * BUDGET)
#define PART (4 * SEG) /* length of a pinned range */
#define OLD 1
#define NEW 2

static const struct ummap_attr init = UMMAP_ATTR_INIT;

static void check_refused(int engine, unsigned flags)
{
	struct ummap_attr attr = init;
	void *m;

	attr.engine = engine;
	attr.flags = flags;
	check_fails(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &m), EOPNOTSUPP);
	check(strstr(umerrormsg(), "UFFDIO_MOVE") && strstr(umerrormsg(), "umpin(3)"), "%s",
	      umerrormsg());
}

/* A process without the right to see accesses by the kernel gets the same message, because the
 * right would not help. */
Test(uffd_old, kernel_accesses_are_refused)
{
	set_env("UMMAP_ENGINE", "auto");
	check_refused(UMMAP_ENGINE_DEFAULT, UMMAP_KERNEL);
	check_refused(UMMAP_ENGINE_AUTO, UMMAP_KERNEL);
	check_refused(UMMAP_ENGINE_UFFD, UMMAP_KERNEL);
	check_refused(UMMAP_ENGINE_SIGBUS, UMMAP_KERNEL);
	check_refused(UMMAP_ENGINE_UFFD, 0);
}

Test(uffd_old, the_variable_is_refused)
{
	set_env("UMMAP_ENGINE", "uffd");
	check_refused(UMMAP_ENGINE_DEFAULT, 0);
}

static void map_by_auto(size_t seg, int engine)
{
	struct ummap_attr attr = init;
	void *m;

	attr.engine = UMMAP_ENGINE_AUTO;
	attr.seg_size = seg;
	check(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &m) == 0);
	check((int)stat_of(m).engine == engine && !stat_of(m).kernel);
	check(umunmap(m, 0) == 0);
}

Test(uffd_old, auto_chooses_what_works)
{
	map_by_auto(4 * KIB, UMMAP_ENGINE_SIGBUS);
	map_by_auto(2 * MIB, UMMAP_ENGINE_SEGV);
}

/* ---- Transfers during which the kernel holds pages of pinned ranges, while segments are evicted
 * ---- */

struct outside {
	uint8_t *part;
	size_t at;
};

static void store_from_outside(void *arg)
{
	const struct outside *o = arg;
	uint8_t *buf = malloc(PART);
	struct iovec here = { buf, PART }, there = { o->part, PART };

	fill(buf, PART, o->at, NEW);
	check(process_vm_writev(getppid(), &here, 1, &there, 1, 0) == (ssize_t)PART);
	free(buf);
}

static void store_by_direct_read(int direct, uint8_t *part, size_t at)
{
	check(pread(direct, part, PART, (off_t)at) == (ssize_t)PART);
}

static atomic_bool over;

/* Loads all segments and writes them, so that each segment that can be evicted is evicted. */
static void *evict_all(void *m)
{
	while (!over) {
		for (size_t at = 0; at < SIZE && !over; at += 4 * KIB)
			(void)*(volatile uint8_t *)((uint8_t *)m + at);
		check(umsync(m, 1) == 0);
	}
	return NULL;
}

static int open_direct(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

static void transfer(uint8_t *m, int direct)
{
	for (size_t at = 0; at < SIZE; at += PART) {
		struct outside o = { m + at, at };

		check(umpin(m + at, PART, READ_WRITE) == 0);
		if (at / PART % 2 && direct >= 0)
			store_by_direct_read(direct, m + at, at);
		else
			check_exits(run_child(store_from_outside, &o), 0);
		check(umunpin(m + at, PART) == 0);
	}
}

static void check_pinned_transfers(int engine, size_t seg)
{
	struct ummap_attr attr = init;
	int fd, direct;
	pthread_t thread;
	char uri[64];
	uint8_t *m;

	set_budget(BUDGET);
	fd = filled_file(SIZE, OLD);
	direct = open_direct(filled_file(SIZE, NEW));
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	attr.engine = engine;
	attr.seg_size = seg;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, (void **)&m) == 0);
	over = false;
	check(pthread_create(&thread, NULL, evict_all, m) == 0);
	transfer(m, direct);
	over = true;
	check(pthread_join(thread, NULL) == 0);
	check_bytes(m, SIZE, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
}

Test(uffd_old, pinned_transfers_with_sigbus)
{
	check_pinned_transfers(UMMAP_ENGINE_SIGBUS, SEG);
}

Test(uffd_old, pinned_transfers_with_sigbus_to_small_segments)
{
	check_pinned_transfers(UMMAP_ENGINE_SIGBUS, 4 * KIB);
}

Test(uffd_old, pinned_transfers_with_segv)
{
	check_pinned_transfers(UMMAP_ENGINE_SEGV, SEG);
}
