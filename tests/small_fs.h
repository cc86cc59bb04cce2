/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small file system, which tests fill up. The mount is detached as soon as the root is open, and
 * all files are opened relative to the root. So the kernel frees the mount, the loop device and the
 * image when the process ends, also when it is killed.
 */
#ifndef TESTS_SMALL_FS_H
#define TESTS_SMALL_FS_H

#include <sys/mount.h>
#include <sys/statvfs.h>

#include "common.h"

#define IMAGE (24 * MIB)

/* Returns the root of a new ext4 in the image. -1: this process cannot create a file system. */
static inline int file_system_in(const char *image, int file, const char *options)
{
	char dir[320], command[1024];
	int device, root;

	snprintf(command, sizeof(command), "mkfs.ext4 -q -F -m 0 %s '%s'", options, image);
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

static inline int small_file_system(void)
{
	char image[320];
	int file = temp_named("image", IMAGE, image);

	return file_system_in(image, file, "");
}

static inline int create(int root, const char *name)
{
	int fd = openat(root, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	check(fd >= 0, "%s", name);
	return fd;
}

static inline size_t space(int root)
{
	struct statvfs st;

	check(fstatvfs(root, &st) == 0);
	return (size_t)st.f_bavail * st.f_frsize;
}

/* Allocates bytes, which make_space frees. */
static inline void fill_up(int root, size_t bytes)
{
	int fd = create(root, "filler");

	check(fallocate(fd, 0, 0, bytes) == 0);
	check(fsync(fd) == 0);
	close(fd);
}

static inline void make_space(int root)
{
	check(unlinkat(root, "filler", 0) == 0);
	check(syncfs(root) == 0);
}

#endif
