/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening a file by another process's descriptor of it. Takes no lock. */
#include "rma/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool descriptor_describe(struct descriptor *d, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	*d = (struct descriptor){ st.st_dev, st.st_ino, getpid(), fd };
	return true;
}

int descriptor_open(const struct descriptor *d)
{
	char path[64];
	struct stat st;
	int fd;

	if (d->fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)d->pid, (int)d->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || (fstat(fd, &st) == 0 && st.st_dev == d->device && st.st_ino == d->inode))
		return fd;
	close(fd);
	return -1;
}
