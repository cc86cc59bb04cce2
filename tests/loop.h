/* SPDX-License-Identifier: BSD-3-Clause */
/* Loop devices, which present a file as a block device. */
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

/* Opens /dev/loopN. Creates the name if the system does not do so. */
static inline int loop_open(int n)
{
	char path[64];
	int fd;

	if (n < 0)
		return -1;
	snprintf(path, sizeof(path), "/dev/loop%d", n);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		/* Another process may create the same name at this time. */
		mknod(path, S_IFBLK | 0660, makedev(LOOP_MAJOR, (unsigned)n));
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	return fd;
}

/*
 * Returns a loop device for the file, or -1 if this process cannot attach one. The kernel removes
 * the device after its last descriptor is closed. The descriptor of the file may be closed before.
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
			usleep(10000);  /* another process uses this device or has just closed it */
	}
	if (control >= 0)
		close(control);
	return device;
}

/* Stores the path of the device. false: it does not fit. */
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
