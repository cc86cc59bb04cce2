/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.h - loop devices: a file as a block device. */
#ifndef TESTS_LOOP_H
#define TESTS_LOOP_H

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Where nobody makes names for new devices, this does. */
static inline int loop_open(int n)
{
	char path[64];
	int fd;

	if (n < 0)
		return -1;
	snprintf(path, sizeof(path), "/dev/loop%d", n);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		/* Another process may do the same just now. */
		mknod(path, S_IFBLK | 0660, makedev(LOOP_MAJOR, (unsigned)n));
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	return fd;
}

/*
 * A loop device over file, or -1 if this process may not have one. It goes away with its last descriptor
 * (and the file's own may be closed).
 */
static inline int loop_attach(int file)
{
	struct loop_config config = { .fd = file, .info = { .lo_flags = LO_FLAGS_AUTOCLEAR } };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int device = -1, err = 0;

	for (int tries = 0; control >= 0 && device < 0 && tries < 500; tries++) {
		device = loop_open(ioctl(control, LOOP_CTL_GET_FREE));
		if (device < 0)
			break;
		err = ioctl(device, LOOP_CONFIGURE, &config) == 0 ? 0 : errno;
		if (err) {
			close(device);
			device = -1;
		}
		if (err && err != EBUSY)
			break;
		if (err)
			usleep(10000);  /* another process was faster, or has not quite left it */
	}
	if (control >= 0)
		close(control);
	return device;
}

/* Its path; false: there is no room for it. */
static inline bool loop_name(int device, char *path, size_t room)
{
	char link[32];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", device);
	len = readlink(link, path, room);
	if (len <= 0 || (size_t)len == room)
		return false;
	path[len] = '\0';
	return true;
}

#endif
