/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps the program from closing or replacing the library's descriptors. A daemon closes every
 * descriptor when it starts; if a descriptor of the library were among them, its number would go to
 * the program's next file, and the library would write there.
 *
 * The library moves its descriptors to numbers from FD_FIRST on with F_DUPFD_CLOEXEC. The table
 * records the file behind each of them: liburing closes its descriptors without calling close(), so
 * an entry counts only while the number still leads to that file.
 */
#include "umrun/descriptors.h"

#include "common/fd_path.h"
#include "umrun/next_calls.h"

#ifndef CLOSE_RANGE_CLOEXEC /* headers before Linux 5.11 */
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

#define MAX_DESCRIPTORS 4096
/* Bytes of one getdents64(2). */
#define ENTRIES_BYTES 2048

/* Files behind the library's descriptors. `inode` is 0 if the number is not the library's. */
static struct {
	_Atomic dev_t device;
	_Atomic ino_t inode;
} library_file[MAX_DESCRIPTORS];

int descriptors_copy(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);

	return copy < 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : copy;
}

/* Does not use opendir(3), which allocates memory. */
bool descriptors_each(void (*found)(int fd), int first)
{
	int folder = open(FD_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(struct dirent64) char entries[ENTRIES_BYTES];
	long len;

	if (folder < 0)
		return false;
	while ((len = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
		for (long at = 0; at < len; at += ((struct dirent64 *)(entries + at))->d_reclen) {
			const char *name = ((struct dirent64 *)(entries + at))->d_name;

			if (*name != '.' && atoi(name) >= first && atoi(name) != folder)
				found(atoi(name));
		}
	}
	close(folder);
	return true;
}

static bool is_in_table(int fd)
{
	return fd >= FD_FIRST && fd < FD_FIRST + MAX_DESCRIPTORS;
}

void descriptors_note_copy(int fd)
{
	struct stat st;
	int error = errno;

	if (is_in_table(fd) && fstat(fd, &st) == 0) {
		atomic_store(&library_file[fd - FD_FIRST].device, st.st_dev);
		atomic_store(&library_file[fd - FD_FIRST].inode, st.st_ino);
	}
	errno = error;
}

static bool is_of_library(int fd)
{
	struct stat st;
	int error = errno;
	ino_t inode;
	bool is;

	if (!is_in_table(fd))
		return false;
	inode = atomic_load(&library_file[fd - FD_FIRST].inode);
	is = inode && fstat(fd, &st) == 0 && st.st_ino == inode &&
	     st.st_dev == atomic_load(&library_file[fd - FD_FIRST].device);
	errno = error;
	return is;
}

/* Called before close(2): 0, or -1 with errno if the descriptor is the library's. */
int before_close(const void *caller, int fd)
{
	if (!is_in_table(fd))
		return 0;
	if (!next_is_own(caller) && is_of_library(fd))
		return errno = EBADF, -1;
	atomic_store(&library_file[fd - FD_FIRST].inode, 0);
	return 0;
}

/* Closes the descriptors of a range in runs that leave out those of the library. */
int take_close_range(unsigned first, unsigned last, int flags)
{
	unsigned fd;

	if (first > last || flags & CLOSE_RANGE_CLOEXEC || last < FD_FIRST ||
	    first >= FD_FIRST + MAX_DESCRIPTORS)
		return next_close_range(first, last, flags);
	for (fd = first < FD_FIRST ? FD_FIRST : first; fd <= last && is_in_table((int)fd); fd++) {
		if (!is_of_library((int)fd))
			continue;
		if (first < fd && next_close_range(first, fd - 1, flags) < 0)
			return -1;
		first = fd + 1;
	}
	return first <= last ? next_close_range(first, last, flags) : 0;
}

static void close_other(int fd)
{
	if (!is_of_library(fd))
		next_close(fd);
}

/* Kernels before Linux 5.9 lack close_range(2). */
void take_closefrom(int first)
{
	first = first < 0 ? 0 : first;
	if (take_close_range((unsigned)first, UINT_MAX, 0) < 0 &&
	    !descriptors_each(close_other, first))
		next_closefrom(first);
}

bool descriptors_may_replace(int fd)
{
	static atomic_bool told;

	if (!is_of_library(fd))
		return true;
	if (!atomic_exchange(&told, true))
		fprintf(stderr, "umrun: cannot replace descriptor %d: libummap uses it. "
			"Try a number below %d.\n", fd, FD_FIRST);
	errno = EBUSY;
	return false;
}
