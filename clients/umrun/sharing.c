/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Before a descriptor is sent to another process, regions under a write lease are handed to the
 * kernel: the other process may use the same description, which does not break a lease. Streams and
 * asynchronous I/O make system calls inside the C library, which would miss stores that a region
 * holds. Regions of files that they use are therefore handed to the kernel.
 */
#include "umrun/calls.h"

#include "umrun/choice.h"
#include "umrun/config.h"
#include "umrun/descriptors.h"
#include "umrun/lease.h"
#include "umrun/process.h"
#include "umrun/region.h"

#include <linux/fiemap.h>
#include <linux/fs.h>

static const char other_calls[] = "the program uses the file by other calls";

/* ---- Descriptors in messages ---- */

static void each_sent_descriptor(const struct msghdr *msg, void (*found)(int fd))
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, c)) {
		size_t len = c->cmsg_len > CMSG_LEN(0) ? c->cmsg_len - CMSG_LEN(0) : 0;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= len; at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			found(fd);
		}
	}
}

static void share_descriptor(int fd)
{
	struct file_id file;

	if (!file_of(fd, &file))
		return;
	list_lock_write();
	region_hand_back_kinds(&file, REGIONS_LEASED,
			       "another process receives the file description");
	lease_note_shared_description(fd);
	list_unlock();
}

void share_message(const struct msghdr *msg)
{
	int error = errno;

	if (!config.exclusive && msg && msg->msg_controllen)
		each_sent_descriptor(msg, share_descriptor);
	errno = error;
}

/* ---- Calls that change a file or its description ---- */

static void hand_back_file(int fd, const char *reason)
{
	struct file_id file;

	if (!has_regions(fd, &file))
		return;
	list_lock_write();
	region_hand_back_file(file, 0, reason);
	list_unlock();
}

/* Called before an ioctl(2) that may clone ranges of files, or list their extents. */
void before_ioctl(int fd, unsigned long request, void *arg)
{
	static const char reason[] = "the program calls an ioctl on its extents";
	const struct file_dedupe_range *dedupe = arg;

	switch (request) {
	case FS_IOC_FIEMAP:
		hand_back_file(fd, reason);
		break;
	case FICLONE:
		hand_back_file((int)(intptr_t)arg, reason);
		hand_back_file(fd, reason);
		break;
	case FICLONERANGE:
		hand_back_file((int)((const struct file_clone_range *)arg)->src_fd, reason);
		hand_back_file(fd, reason);
		break;
	case FIDEDUPERANGE:
		hand_back_file(fd, reason);
		for (unsigned i = 0; i < dedupe->dest_count; i++)
			hand_back_file((int)dedupe->info[i].dest_fd, reason);
		break;
	default:
		break;
	}
}

/* Called before the C library writes to a descriptor by a stream, for example a standard stream, or
 * the stream inside the C library for formatted output to a descriptor. */
void before_stream(int fd)
{
	struct file_id file;

	if (list_is_locked_here() || !is_open_for_writing(fd) || !file_of(fd, &file))
		return;
	list_lock_write();
	region_hand_back_kinds(&file, REGIONS_ALL, other_calls);
	lease_note_shared_description(fd);
	list_unlock();
}

/* Called before dup2(2): 0, or -1 with errno if the number is the library's. */
int before_replacement(int fd, int wanted)
{
	if (!descriptors_may_replace(wanted))
		return -1;
	if (is_own_process())
		before_stream(fd);
	return 0;
}

int take_dup(const void *caller, int fd)
{
	int copy = next_dup(fd);

	if (copy >= 0 && copy <= STDERR_FILENO && !next_is_library(caller) && is_own_process())
		before_stream(copy);
	return copy;
}

/* The driver of a region under a write lease uses the program's description, and the lease is set
 * on it. */
void share_changed_description(int fd, int command)
{
	if (!config.exclusive && (command == F_SETFL || command == F_SETLEASE ||
				  command == F_SETOWN || command == F_SETOWN_EX ||
				  command == F_SETSIG))
		hand_back_file(fd, "the program changes the description by fcntl");
}

void share_memory_file(const char *path)
{
	size_t len = path ? strlen(path) : 0;

	if (len < 9 || strncmp(path, "/proc/", 6) != 0 || strcmp(path + len - 4, "/mem") != 0 ||
	    atomic_exchange(&choice_has_memory, true))
		return;
	list_lock_write();
	region_hand_back_range(NULL, SIZE_MAX, "the program opens the memory of a process");
	list_unlock();
}

/* ---- Streams and asynchronous I/O ---- */

/* Hands regions to the kernel if the stream would miss their stores, or if they would miss what
 * the stream writes. */
FILE *note_stream(FILE *stream)
{
	int error = errno, fd = stream ? fileno(stream) : -1;
	bool is_writable = fd >= 0 && is_open_for_writing(fd);
	struct file_id file;

	if (fd >= 0 && file_of(fd, &file)) {
		choice_note_stream(stream, file, is_writable);
		if (region_file_count && !list_is_locked_here()) {
			list_lock_write();
			region_hand_back_kinds(&file, is_writable ? REGIONS_ALL : REGIONS_SHARED,
					       other_calls);
			list_unlock();
		}
	}
	errno = error;
	return stream;
}

/* Mode "w" truncates the file, so regions of it are handed over first. */
FILE *take_fopen(const char *path, const char *mode)
{
	if (*mode == 'w' && shorten_path(AT_FDCWD, path, 0) < 0)
		return NULL;
	return note_stream(next_fopen(path, mode));
}

FILE *take_freopen(const char *path, const char *mode, FILE *file)
{
	if (path && *mode == 'w' && shorten_path(AT_FDCWD, path, 0) < 0)
		return NULL;
	choice_forget_stream(file);
	return note_stream(next_freopen(path, mode, file));
}

void before_async(void)
{
	if (atomic_exchange(&choice_has_async, true))
		return;
	list_lock_write();
	region_hand_back_kinds(NULL, REGIONS_SHARED, other_calls);
	list_unlock();
}
