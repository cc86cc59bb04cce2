/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that shorten or open a file by its path, and that change a description. */
#include "umrun/calls.h"
#include "umrun/descriptors.h"
#include "umrun/region.h"
#include "umrun/sharing.h"

/* The call reports errors of the path. */
int shorten_path(int folder, const char *path, off_t len)
{
	int error = errno, result = 0;
	struct stat st;

	if (region_file_count && path && fstatat(folder, path, &st, 0) == 0 &&
	    S_ISREG(st.st_mode) &&
	    len < st.st_size)
		result = shorten_file(&st, len);
	if (result == 0)
		errno = error;
	return result;
}

int take_openat(int folder, const char *path, int flags, mode_t mode)
{
	sharing_open(path);
	if (flags & O_TRUNC && shorten_path(folder, path, 0) < 0)
		return -1;
	return next_openat(folder, path, flags, mode);
}

int take_fcntl(const void *caller, int fd, int command, void *arg)
{
	int result;

	if (region_file_count && !next_is_library(caller) && !region_holds_lock())
		sharing_change_description(fd, command);
	result = next_fcntl(fd, command, arg);
	if (command == F_DUPFD_CLOEXEC && (intptr_t)arg == FD_FIRST && next_is_own(caller))
		descriptors_note_copy(result);
	return result;
}
