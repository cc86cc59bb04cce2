/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_enospc - a real file system that is full: umsync says ENOSPC, everything stays readable in memory,
 * and once there is space the same umsync succeeds. Needs root, for a loop mount.
 *
 * The mount is detached as soon as its root is open, and everything else is reached from there: however the
 * process ends, the kernel takes mount, loop device and image away with it.
 */
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "common.h"

#define SEG (64 * KIB)
#define IMAGE (24 * MIB)
#define NEW 2
#define LATER 3

/* The root of a new small ext4 that has no place in the tree; -1: not here. */
static int small_file_system(void)
{
	char image[320], dir[320], command[1024];
	int file = temp_named("image", IMAGE, image), device, root;

	snprintf(command, sizeof(command), "mkfs.ext4 -q -F -m 0 '%s'", image);
	if (geteuid() != 0 || system(command) != 0 || (device = loop_attach(file)) < 0)
		return -1;
	snprintf(command, sizeof(command), "/proc/self/fd/%d", device);
	snprintf(dir, sizeof(dir), "%s/mount", temp_dir());
	check(mkdir(dir, 0700) == 0);
	check(mount(command, dir, "ext4", 0, NULL) == 0);
	root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	check(umount2(dir, MNT_DETACH) == 0);
	check(root >= 0);
	close(device);
	close(file);
	return root;
}

static int create(int root, const char *name)
{
	int fd = openat(root, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	check(fd >= 0, "%s", name);
	return fd;
}

static size_t space(int root)
{
	struct statvfs st;

	check(fstatvfs(root, &st) == 0);
	return (size_t)st.f_bavail * st.f_frsize;
}

/* Takes space, and gives it back. */
static void fill_up(int root, size_t bytes)
{
	int fd = create(root, "filler");

	check(fallocate(fd, 0, 0, bytes) == 0);
	check(fsync(fd) == 0);
	close(fd);
}

static void make_space(int root)
{
	check(unlinkat(root, "filler", 0) == 0);
	check(syncfs(root) == 0);
}

struct job {
	int root;
	const char *driver;
	size_t budget;
};

static void write_too_much(void *arg)
{
	struct job *j = arg;
	size_t available = space(j->root), filler = available / 2;
	size_t size = (available - filler / 2) / SEG * SEG;
	uint8_t *m;
	int fd;

	set_env("UMMAP_DRIVER", j->driver);
	set_budget(j->budget);
	fill_up(j->root, filler);
	fd = create(j->root, "data");
	m = map_file(fd, size, SEG, READ_WRITE, 0);
	fill(m, size, 0, NEW);
	check_fails(umsync(m, 1), ENOSPC);
	check_bytes(m, size, 0, NEW);  /* what was not written is still in memory */
	check_fails(umsync(m, 0), ENOSPC);
	fill(m + size / 2, SEG, size / 2, LATER);
	check_fails(umunmap(m, 1), ENOSPC);
	check_bytes(m, size / 2, 0, NEW);
	check(stat_of(m).write_errors > 0 && stat_of(m).dirty_bytes > 0);
	if (j->budget < size)
		check(stat_of(NULL).over_budget_peak > 0, "rather over the budget than lose a byte");
	make_space(j->root);
	if (umsync(m, 1) != 0)  /* an error of an eviction since then is still to be told, once */
		check(errno == ENOSPC && umsync(m, 1) == 0);
	check(stat_of(m).dirty_bytes == 0);
	check(umunmap(m, 1) == 0);
	check(file_size(fd) == size);
	check_file(fd, 0, size / 2, 0, NEW);
	check_file(fd, size / 2, SEG, size / 2, LATER);
	check_file(fd, size / 2 + SEG, size - size / 2 - SEG, size / 2 + SEG, NEW);
	close(fd);
	check(unlinkat(j->root, "data", 0) == 0);
	check(syncfs(j->root) == 0);
}

int main(void)
{
	static const char *const drivers[] = { "posix", "uring" };
	int root = small_file_system();

	if (root < 0) {
		printf("needs root, mkfs.ext4 and a loop device\n");
		return 77;
	}
	for (int i = 0; i < 2; i++) {
		struct job plenty = { root, drivers[i], 64 * MIB }, little = { root, drivers[i], 2 * MIB };

		if (!has_driver(drivers[i]))
			continue;
		check_exits(run_child(write_too_much, &plenty), 0);
		check_exits(run_child(write_too_much, &little), 0);
	}
	return 0;
}
