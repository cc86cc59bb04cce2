/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Liveness by a lock: a process holds a lock on a file or on some of its bytes for as long as it
 * uses the file, and the kernel releases the lock however the process dies. A process that gets the
 * lock knows that no other process is left. A lock belongs to the open file description, so a
 * forked child, a duplicate of the descriptor and a mapping of the file hold it, too. The functions
 * do not wait, and may be called in a signal handler.
 */
#ifndef COMMON_TRY_LOCK_H
#define COMMON_TRY_LOCK_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/stat.h>

/*
 * Locks a file as flock(2) does, how being LOCK_SH or LOCK_EX. Returns 0, -EBUSY if another
 * description holds the lock, or another negative errno value.
 */
static inline int try_lock_file(int fd, int how)
{
	while (flock(fd, how | LOCK_NB) < 0) {
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EBUSY : -errno;
	}
	return 0;
}

/*
 * Sets a lock of type F_WRLCK, F_RDLCK or F_UNLCK on len bytes from off on (len 0: to the end). It
 * returns the same values as try_lock_file, and is independent of that lock.
 */
static inline int try_lock_bytes(int fd, short type, uint64_t off, uint64_t len)
{
	struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)off,
			       .l_len = (off_t)len };

	while (fcntl(fd, F_OFD_SETLK, &range) < 0) {
		if (errno != EINTR)
			return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
	}
	return 0;
}

/*
 * Whether a path, relative to `folder` as in openat(2), still leads to the open file. Another
 * process may have removed or replaced the file before this one had the lock.
 */
static inline bool file_has_name(int fd, int folder, const char *path)
{
	struct stat named, opened;

	return fstatat(folder, path, &named, 0) == 0 && fstat(fd, &opened) == 0 &&
	       named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

#endif
