/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that make a file shorter, or durable, by its name: opening it to be written from its beginning, truncate, sync. */
#include "umrun/calls.h"
#include "umrun/descriptors.h"
#include "umrun/next.h"
#include "umrun/region.h"
#include "umrun/sharing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Errors of the path are the call's to tell. */
int shorten_path(int folder, const char *path, off_t len)
{
	int error = errno, result = 0;
	struct stat st;

	if (region_files && path && fstatat(folder, path, &st, 0) == 0 && S_ISREG(st.st_mode) && len < st.st_size)
		result = shorten_file(&st, len);
	if (result == 0)
		errno = error;
	return result;
}

static int truncate_path(const char *path, off_t len)
{
	return shorten_path(AT_FDCWD, path, len) < 0 ? -1 : ((int (*)(const char *, off_t))NEXT("truncate"))(path, len);
}

PUBLIC int truncate(const char *path, off_t len)
{
	return truncate_path(path, len);
}

PUBLIC int truncate64(const char *path, off_t len)
{
	return truncate_path(path, len);
}

/* ---- Opening. ---- */

static int open_path(const void *caller, int folder, const char *path, int flags, mode_t mode)
{
	int (*next)(int, const char *, int, mode_t) = NEXT("openat");

	if (!next_is_library(caller))
		sharing_open(path);
	if (flags & O_TRUNC && !next_is_library(caller) && shorten_path(folder, path, 0) < 0)
		return -1;
	return next(folder, path, flags, mode);
}

static mode_t mode_of(int flags, va_list *rest)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(*rest, mode_t) : 0;
}

PUBLIC int open(const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = mode_of(flags, &rest);
	va_end(rest);
	return open_path(CALLER, AT_FDCWD, path, flags, mode);
}

PUBLIC int open64(const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = mode_of(flags, &rest);
	va_end(rest);
	return open_path(CALLER, AT_FDCWD, path, flags, mode);
}

PUBLIC int openat(int folder, const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = mode_of(flags, &rest);
	va_end(rest);
	return open_path(CALLER, folder, path, flags, mode);
}

PUBLIC int openat64(int folder, const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = mode_of(flags, &rest);
	va_end(rest);
	return open_path(CALLER, folder, path, flags, mode);
}

PUBLIC int creat(const char *path, mode_t mode)
{
	return open_path(CALLER, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

PUBLIC int creat64(const char *path, mode_t mode)
{
	return open_path(CALLER, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* What programs call that were built to be checked (_FORTIFY_SOURCE). */
PUBLIC int __open_2(const char *path, int flags);
PUBLIC int __open_2(const char *path, int flags)
{
	return open_path(CALLER, AT_FDCWD, path, flags, 0);
}

PUBLIC int __open64_2(const char *path, int flags);
PUBLIC int __open64_2(const char *path, int flags)
{
	return open_path(CALLER, AT_FDCWD, path, flags, 0);
}

PUBLIC int __openat_2(int folder, const char *path, int flags);
PUBLIC int __openat_2(int folder, const char *path, int flags)
{
	return open_path(CALLER, folder, path, flags, 0);
}

PUBLIC int __openat64_2(int folder, const char *path, int flags);
PUBLIC int __openat64_2(int folder, const char *path, int flags)
{
	return open_path(CALLER, folder, path, flags, 0);
}

/* ---- Descriptions. ---- */

static int change_description(const void *caller, int fd, int command, void *arg)
{
	int (*next)(int, int, void *) = NEXT("fcntl");
	int result;

	if (region_files && !next_is_library(caller) && !region_is_locked())
		sharing_change_description(fd, command);
	result = next(fd, command, arg);
	if (command == F_DUPFD_CLOEXEC && (intptr_t)arg == FD_FIRST && next_is_own(caller))
		descriptors_note_copy(result);
	return result;
}

PUBLIC int fcntl(int fd, int command, ...)
{
	va_list rest;
	void *arg;

	va_start(rest, command);
	arg = va_arg(rest, void *);
	va_end(rest);
	return change_description(CALLER, fd, command, arg);
}

PUBLIC int fcntl64(int fd, int command, ...)
{
	va_list rest;
	void *arg;

	va_start(rest, command);
	arg = va_arg(rest, void *);
	va_end(rest);
	return change_description(CALLER, fd, command, arg);
}

/* ---- All of a file system. ---- */

PUBLIC void sync(void)
{
	region_write_all();
	((void (*)(void))NEXT("sync"))();
}

PUBLIC int syncfs(int fd)
{
	region_write_all();
	return ((int (*)(int))NEXT("syncfs"))(fd);
}
