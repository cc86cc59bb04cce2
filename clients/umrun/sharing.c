/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways by which file descriptions reach other processes, and by which file contents reach the
 * program, without the calls of calls.c. Before a child begins or a descriptor is sent, regions
 * under a write lease are handed to the kernel: the other process may use the same description,
 * which does not break a lease. The streams and the asynchronous I/O of the C library make system
 * calls inside the C library, which would miss stores that a region holds. Regions of files that
 * they use are therefore handed to the kernel.
 */
#include "umrun/sharing.h"

#include "umrun/calls.h"
#include "umrun/config.h"
#include "umrun/descriptors.h"
#include "umrun/lease.h"
#include "umrun/region.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

struct stream {
	FILE *file;
	dev_t dev;
	ino_t ino;
	bool writable;
	struct stream *next;
};

static struct stream *streams;
static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned stream_count;
static _Atomic bool has_async, has_memory;

/* ---- Children ---- */

/* Called before a child process begins, because the child shares the descriptions of this
 * process. */
void begin_child(void)
{
	int error = errno;

	/* The child of vfork(2) has its parent's memory, and the parent waits. */
	if (config.exclusive || region_holds_lock() || !region_is_own_process())
		return;
	region_lock_write();
	region_hand_back_leased();
	lease_note_shared_descriptions();
	region_unlock();
	errno = error;
}

/* Returns the C library's vfork, to which the caller jumps. */
__attribute__((visibility("hidden"), used))
void *sharing_begin_vfork(void);
void *sharing_begin_vfork(void)
{
	begin_child();
	return next_call(CALL_vfork);
}

/* vfork(2) returns twice, so no frame may lie between it and the program. */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".globl vfork\n"
	".type vfork, @function\n"
	"vfork:\n"
	"	endbr64\n"
	"	subq $8, %rsp\n"
	"	call sharing_begin_vfork\n"
	"	addq $8, %rsp\n"
	"	jmp *%rax\n"
	".size vfork, .-vfork\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".globl vfork\n"
	".type vfork, %function\n"
	"vfork:\n"
	"	stp x29, x30, [sp, #-16]!\n"
	"	bl sharing_begin_vfork\n"
	"	mov x16, x0\n"
	"	ldp x29, x30, [sp], #16\n"
	"	br x16\n"
	".size vfork, .-vfork\n"
	".popsection\n");
#endif

/* Children that run no handlers of fork(2): they get every mapping from the kernel. */
static void begin_bare_child(void)
{
	int error = errno;

	if (region_holds_lock() || !region_is_own_process())
		return;
	begin_child();
	region_lock_write();
	region_hand_back_range(NULL, SIZE_MAX, "a child begins without the handlers of fork");
	region_unlock();
	errno = error;
}

pid_t take_Fork(void)
{
	pid_t pid;

	begin_bare_child();
	pid = next__Fork();
	if (pid == 0)
		region_note_child();
	return pid;
}

void begin_clone(int flags)
{
	if (!(flags & CLONE_VM))
		begin_bare_child();
	else if (!(flags & CLONE_FILES))
		begin_child();
}

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
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	region_lock_write();
	region_hand_back_leased_file(&st);
	lease_note_shared_description(fd);
	region_unlock();
}

void sharing_message(const struct msghdr *msg)
{
	int error = errno;

	if (!config.exclusive && msg && msg->msg_controllen)
		each_sent_descriptor(msg, share_descriptor);
	errno = error;
}

/* ---- Calls that change a file or its description ---- */

static void hand_back_file(int fd, const char *reason)
{
	int error = errno;
	struct stat st;

	if (region_file_count && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		region_lock_write();
		region_hand_back_file(&st, 0, reason);
		region_unlock();
	}
	errno = error;
}

void hand_back_cloned(int fd, unsigned long request, const void *arg)
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

/* The C library may have a stream on the descriptor, for example a standard stream. Formatted
 * output to a descriptor goes through a stream inside the C library. */
void share_with_stream(int fd)
{
	int error = errno;
	struct stat st;

	if (region_holds_lock() || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY ||
	    fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return errno = error, (void)0;
	region_lock_write();
	region_hand_back_stale(&st, true);
	lease_note_shared_description(fd);
	region_unlock();
	errno = error;
}

int prepare_replacement(int fd, int wanted)
{
	if (!descriptors_may_replace(wanted))
		return -1;
	if (region_is_own_process())
		share_with_stream(fd);
	return 0;
}

int take_dup(const void *caller, int fd)
{
	int copy = next_dup(fd);

	if (copy >= 0 && copy <= STDERR_FILENO && !next_is_library(caller) &&
	    region_is_own_process())
		share_with_stream(copy);
	return copy;
}

/* The driver of a region under a write lease uses the program's description, and the lease is set
 * on it. */
void sharing_change_description(int fd, int command)
{
	if (!config.exclusive && (command == F_SETFL || command == F_SETLEASE ||
				  command == F_SETOWN || command == F_SETOWN_EX ||
				  command == F_SETSIG))
		hand_back_file(fd, "the program changes the description by fcntl");
}

/* ---- The memory of a process as a file ---- */

bool sharing_has_memory(void)
{
	return has_memory;
}

void sharing_open(const char *path)
{
	size_t len = path ? strlen(path) : 0;
	int error = errno;

	if (len < 9 || strncmp(path, "/proc/", 6) != 0 || strcmp(path + len - 4, "/mem") != 0 ||
	    atomic_exchange(&has_memory, true))
		return;
	region_lock_write();
	region_hand_back_range(NULL, SIZE_MAX, "the program opens the memory of a process");
	region_unlock();
	errno = error;
}

/* ---- Streams ---- */

void forget_stream(FILE *file)
{
	struct stream **at = &streams, *gone;

	if (!stream_count)
		return;
	pthread_mutex_lock(&stream_lock);
	while (*at && (*at)->file != file)
		at = &(*at)->next;
	gone = *at;
	if (gone) {
		*at = gone->next;
		stream_count--;
	}
	pthread_mutex_unlock(&stream_lock);
	free(gone);
}

static void add_stream(struct stream *s)
{
	pthread_mutex_lock(&stream_lock);
	s->next = streams;
	streams = s;
	stream_count++;
	pthread_mutex_unlock(&stream_lock);
}

/* Hands regions to the kernel if the stream would miss their stores, or if they would miss what
 * the stream writes. */
FILE *note_stream(FILE *file)
{
	int error = errno, fd = file ? fileno(file) : -1;
	struct stream *s;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return errno = error, file;
	s = malloc(sizeof(*s));
	if (s) {
		*s = (struct stream){ file, st.st_dev, st.st_ino,
				      (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY, NULL };
		add_stream(s);
	}
	if (region_file_count && !region_holds_lock()) {
		region_lock_write();
		region_hand_back_stale(&st, !s || s->writable);
		region_unlock();
	}
	errno = error;
	return file;
}

bool sharing_has_stream(const struct stat *st, bool writable)
{
	bool has = false;

	if (!stream_count)
		return false;
	pthread_mutex_lock(&stream_lock);
	for (const struct stream *s = streams; s && !has; s = s->next)
		has = s->ino == st->st_ino && s->dev == st->st_dev && (writable || s->writable);
	pthread_mutex_unlock(&stream_lock);
	return has;
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
	forget_stream(file);
	return note_stream(next_freopen(path, mode, file));
}

/* ---- Asynchronous I/O ---- */

bool sharing_has_async(void)
{
	return has_async;
}

void begin_async(void)
{
	int error = errno;

	if (atomic_exchange(&has_async, true))
		return;
	region_lock_write();
	region_hand_back_stale(NULL, false);
	region_unlock();
	errno = error;
}
