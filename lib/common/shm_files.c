/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/shm_files.h"

#include "common/fd_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PATH_BYTES 256

int shm_make_file(size_t size)
{
	struct rlimit most;
	int fd, err;

	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size)
		return -EFBIG;
	fd = open(SHM_FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Against the umask. */
	if (fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)size) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int shm_name_file(int fd, const char *path)
{
	char self[FD_PATH_BYTES];

	fd_path(self, fd);
	return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

void shm_each_file(const char *begin, void (*found)(const char *path))
{
	DIR *folder = opendir(SHM_FOLDER);
	const struct dirent *entry;
	char path[MAX_PATH_BYTES];

	while (folder && (entry = readdir(folder))) {
		int n = snprintf(path, sizeof(path), SHM_FOLDER "/%s", entry->d_name);

		if (n < (int)sizeof(path) && strncmp(path, begin, strlen(begin)) == 0)
			found(path);
	}
	if (folder)
		closedir(folder);
}
