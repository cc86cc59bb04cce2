/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files, and not devices: the kernel aligns mappings of a DAX device to 2 MiB, and processes would
 * have to share it out among themselves.
 */
#include "memory/dax.h"

#include "base/log.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

static int refuse(const char *folder, const char *reason)
{
	return fail(EINVAL, "cannot use 'dax:%.200s' in UMMAP_TIERS: %s", folder, reason);
}

/* The kernel accepts MAP_SYNC only for DAX. */
static bool is_direct(int fd)
{
	void *p = raw_mmap(NULL, sys_page(), PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);

	if (p != MAP_FAILED)
		raw_munmap(p, sys_page());
	return p != MAP_FAILED;
}

/* A thread that frees a part of the file waits while a page of the file is pinned, for example by a
 * direct transfer to another frame. Linux 6.1 may fail to wake it when the pin ends. It holds the
 * lock of the inode, so every thread that needs a frame waits, too. */
static bool can_free_parts(void)
{
	struct utsname kernel;
	unsigned version, patchlevel;

	return uname(&kernel) == 0 &&
	       sscanf(kernel.release, "%u.%u", &version, &patchlevel) == 2 &&
	       (version > 6 || (version == 6 && patchlevel >= 12));
}

static int check_file(const char *folder, int fd, uint64_t *space)
{
	struct rlimit limit;
	struct statvfs fs;

	if (!is_direct(fd))
		return refuse(folder, "its file system does not map persistent memory directly. "
			      "Try a file system that is mounted with -o dax, or node:N");
	if (!can_free_parts())
		return refuse(folder, "this kernel may stop threads that free memory of the file. "
			      "Try Linux 6.12 or later, or `daxctl reconfigure-device "
			      "--mode=system-ram`, which makes the device a node, and node:N");
	/* fallocate(2) beyond this limit would raise SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		return refuse(folder, "the size of files is limited. Try `ulimit -f unlimited`");
	if (fstatvfs(fd, &fs) < 0)
		return refuse(folder, strerror(errno));
	*space = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}

int dax_open(const char *folder, uint64_t *space)
{
	struct stat st;
	int fd, err;

	if (stat(folder, &st) == 0 && S_ISCHR(st.st_mode))
		return refuse(folder, "devices are not supported. Try `daxctl reconfigure-device "
			      "--mode=system-ram`, which makes the device a node, and node:N");
	fd = sys_move_fd(open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	if (fd < 0)
		return refuse(folder, strerror(errno));
	err = check_file(folder, fd, space);
	if (err)
		close(fd);
	return err ? err : fd;
}
