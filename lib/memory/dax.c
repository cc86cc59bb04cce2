/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files, and not devices: the kernel aligns mappings of a DAX device to 2 MiB, and processes would
 * have to share it out among themselves.
 */
#include "memory/dax.h"

#include "base/log.h"
#include "base/sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
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

static int check_file(const char *folder, int fd, uint64_t *space)
{
	struct rlimit limit;
	struct statvfs fs;

	if (!is_direct(fd))
		return refuse(folder, "its file system does not map persistent memory directly. "
			      "Try a file system that is mounted with -o dax, or node:N");
	if (!sys_can_move_shared(fd))
		return refuse(folder, "this kernel does not move mappings of files. Try Linux 5.13 "
			      "or later");
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
