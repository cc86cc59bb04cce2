/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real block device that loses its upper half under a mapping, first the medium and then the
 * size. Loads from it raise SIGBUS; changes cannot be written and stay in memory; the lower half
 * works; nothing hangs. After the device is complete again, all works. Needs root, for a loop
 * device.
 */
#include <linux/fs.h>

#include "common.h"

#define SEG (64 * KIB)
#define SEGS ((size_t)64)
#define SIZE (SEGS * SEG)
#define HALF (SIZE / 2)
#define BUDGET (SIZE / 8)
#define CHANGED ((size_t)3) /* number of changed segments at the end of the upper half */
#define OLD 1
#define NEW 2

struct job {
	const char *driver, *direct;
	int file, device;
	uint8_t *base;
};

static unsigned told;
static int told_error;

static void note_error(void *addr, int error)
{
	(void)addr;
	told++;
	told_error = error;
}

/* ---- The device ---- */

static void resize_device(const struct job *j, size_t size)
{
	uint64_t now_has;

	check(ioctl(j->device, LOOP_SET_CAPACITY) == 0);
	check(ioctl(j->device, BLKGETSIZE64, &now_has) == 0 && now_has == size, "%" PRIu64,
	      now_has);
}

/* Empties the page cache of the device, so that it reads from its file. */
static void lose_medium(const struct job *j)
{
	check(ftruncate(j->file, HALF) == 0);
	check(ioctl(j->device, BLKFLSBUF) == 0);
}

/* Restores the upper half. The lower half may have changed. */
static void restore_medium(const struct job *j)
{
	file_fill(j->file, HALF, SIZE - HALF, HALF, OLD);
	check(fsync(j->file) == 0);
	check(ioctl(j->device, BLKFLSBUF) == 0);
}

/* ---- Loads ---- */

/* Whether the segment can be loaded. If so, checks its contents. */
static bool load(const struct job *j, size_t i, uint64_t seed)
{
	uint64_t value;

	told_error = 0;
	if (!try_load(j->base + i * SEG, &value)) {
		check(bus_info.si_addr == j->base + i * SEG);
		check(told_error == EIO, "%d", told_error);
		return false;
	}
	check(told_error == 0);
	check_bytes(j->base + i * SEG, SEG, i * SEG, seed);
	return true;
}

static unsigned load_some(const struct job *j, size_t first, size_t last, uint64_t seed)
{
	unsigned n = 0;

	for (size_t i = first; i < last; i++)
		n += load(j, i, seed);
	return n;
}

/* The upper half is gone, except for segments in memory. Each access tries again, and a pin reports
 * the error. */
static void check_gone(const struct job *j, size_t last)
{
	size_t first = HALF / SEG;
	unsigned before = told;

	check(load_some(j, first, last, OLD) <= BUDGET / SEG);
	check(told > before);
	check(load_some(j, 0, first, OLD) == first);
	/* Fills the memory with the lower half. */
	check(load_some(j, first, last, OLD) == 0);
	check(!try_store(j->base + first * SEG, 1));
	check_fails(umpin(j->base + first * SEG, SEG, PROT_READ), EIO);
}

/* ---- Stores ---- */

static void check_changed(const struct job *j)
{
	check(load_some(j, SEGS - CHANGED, SEGS, NEW) == CHANGED);
}

/* Changes segments that the device then lacks. Accesses to the lower half do not evict them. */
static void store_and_lose(const struct job *j)
{
	fill(j->base + SIZE - CHANGED * SEG, CHANGED * SEG, SIZE - CHANGED * SEG, NEW);
	lose_medium(j);
	resize_device(j, HALF);
	check_gone(j, SEGS - CHANGED);
	fill(j->base, HALF, 0, NEW);
	check_changed(j);
	for (int i = 0; i < 2; i++)
		check_fails(umsync(j->base, 1), ENOSPC);
	check_fails(umunmap(j->base, 1), ENOSPC);
	check_changed(j);
	check(load_some(j, 0, HALF / SEG, NEW) == HALF / SEG);
	check(stat_of(j->base).dirty_bytes == CHANGED * SEG, "%" PRIu64,
	      stat_of(j->base).dirty_bytes);
}

static void recover(const struct job *j)
{
	restore_medium(j);
	resize_device(j, SIZE);
	if (umsync(j->base, 1) != 0)  /* an earlier background error, which is reported once */
		check(errno == ENOSPC && umsync(j->base, 1) == 0);
	check(load_some(j, 0, HALF / SEG, NEW) == HALF / SEG);
	check(load_some(j, HALF / SEG, SEGS - CHANGED, OLD) == SEGS - CHANGED - HALF / SEG);
	check_changed(j);
	check(umunmap(j->base, 1) == 0);
	check(fsync(j->device) == 0);
	check_file(j->file, 0, HALF, 0, NEW);
	check_file(j->file, HALF, SIZE - CHANGED * SEG - HALF, HALF, OLD);
	check_file(j->file, SIZE - CHANGED * SEG, CHANGED * SEG, SIZE - CHANGED * SEG, NEW);
}

static void shrink_and_grow(void *arg)
{
	struct job *j = arg;

	set_env("UMMAP_DRIVER", j->driver);
	set_env("UMMAP_DIRECT", j->direct);
	set_env("UMMAP_READAHEAD", "0");
	set_budget(BUDGET);
	file_fill(j->file, 0, SIZE, 0, OLD);
	check(fsync(j->file) == 0);
	j->device = loop_attach(j->file);
	check(j->device >= 0);
	j->base = map_file(j->device, SIZE, SEG, READ_WRITE, 0);
	check(umonerror(note_error) == 0);
	catch_sigbus();
	check(load_some(j, 0, SEGS, OLD) == SEGS);
	lose_medium(j);
	check_gone(j, SEGS);
	restore_medium(j);
	check(load_some(j, 0, SEGS, OLD) == SEGS);
	store_and_lose(j);
	recover(j);
}

static bool has_loop_devices(void)
{
	int file = temp_file(MIB), device = geteuid() == 0 ? loop_attach(file) : -1;

	if (device >= 0)
		close(device);
	close(file);
	return device >= 0;
}

int main(void)
{
	static const char *const drivers[] = { "posix", "uring" }, *const ways[] = { "auto",
										     "always",
										     "never" };

	if (!has_loop_devices()) {
		printf("needs root and a loop device\n");
		return 77;
	}
	for (int d = 0; d < 2; d++) {
		for (int w = 0; w < 3 && has_driver(drivers[d]); w++) {
			struct job job = { .driver = drivers[d],
					   .direct = ways[w],
					   .file = temp_file(SIZE) };

			printf("%s, direct=%s\n", job.driver, job.direct);
			check_exits(run_child(shrink_and_grow, &job), 0);
			close(job.file);
		}
	}
	return 0;
}
