/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/lease.h"

#include "common/fd_path.h"
#include "umrun/next_calls.h"
#include "umrun/region.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Time until a failed hand-over is tried again. */
#define RETRY_NS 100000000

/* Bytes of one getdents64(2). */
#define ENTRIES_BYTES 2048

/* A file with an open file description that this process may share with another one. */
struct shared_description {
	dev_t dev;
	ino_t ino;
};

static struct lease *leases;
/* Before a fork, malloc's locks may be held: the memory comes from the kernel. */
static struct { struct shared_description *files; size_t count, room; } shared;
/* The list may lack files: any description may be shared. */
static bool has_forgotten;
/* Descriptors that cannot be closed while the program may hold locks of their files. */
static struct { int *fd; size_t count, room; } parked;
/* The thread that the kernel signals when a lease is broken, and its process. */
static struct { pid_t process, thread; sem_t started; } watcher;

/* ---- Descriptors ---- */

/* POSIX drops a process's record locks of a file when any descriptor of the file is closed. Such
 * a lock conflicts with one of an open file description, so the kernel can be asked whether there
 * is a lock. The owner of the lock does not matter here. */
static bool may_have_locks(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void close_parked(void)
{
	size_t left = 0;

	for (size_t i = 0; i < parked.count; i++) {
		if (may_have_locks(parked.fd[i]))
			parked.fd[left++] = parked.fd[i];
		else
			close(parked.fd[i]);
	}
	parked.count = left;
}

void close_unless_locked(int fd)
{
	close_parked();
	if (!may_have_locks(fd)) {
		close(fd);
		return;
	}
	if (parked.count == parked.room) {
		int *more = realloc(parked.fd, (2 * parked.room + 8) * sizeof(int));

		/* Without memory the descriptor stays open. */
		if (!more)
			return;
		parked.fd = more;
		parked.room = 2 * parked.room + 8;
	}
	parked.fd[parked.count++] = fd;
}

static int move_away(int fd)
{
	int away = may_have_locks(fd) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);

	if (away < 0)
		return fd;
	close(fd);
	return away;
}

/* ---- Descriptions that other processes may have ---- */

static bool is_shared_description(const struct stat *st)
{
	for (size_t i = 0; i < shared.count; i++) {
		if (shared.files[i].ino == st->st_ino && shared.files[i].dev == st->st_dev)
			return true;
	}
	return false;
}

/* Without memory for the list, no description gets a write lease any more. */
static void grow_shared(void)
{
	size_t room = shared.room ? 2 * shared.room :
		      (size_t)sysconf(_SC_PAGESIZE) / sizeof(*shared.files);
	struct shared_description *more = map_private(room * sizeof(*more));

	if (more == MAP_FAILED) {
		fprintf(stderr, "umrun: cannot track open files: no memory. "
			"Writable mappings stay with the kernel from now on.\n");
		has_forgotten = true;
		return;
	}
	if (shared.room) {
		memcpy(more, shared.files, shared.count * sizeof(*more));
		kernel_munmap(shared.files, shared.room * sizeof(*more));
	}
	shared.files = more;
	shared.room = room;
}

void lease_note_shared_description(int fd)
{
	struct stat st;

	if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY || fstat(fd, &st) < 0 ||
	    !S_ISREG(st.st_mode) || is_shared_description(&st))
		return;
	if (shared.count == shared.room)
		grow_shared();
	if (shared.count < shared.room)
		shared.files[shared.count++] = (struct shared_description){ st.st_dev, st.st_ino };
}

/* Calls found for each open descriptor. Does not use opendir(3), which allocates memory. Returns
 * false if the descriptors cannot be listed. */
static bool each_descriptor(void (*found)(int fd))
{
	int folder = open(FD_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(struct dirent64) char entries[ENTRIES_BYTES];
	long len;

	if (folder < 0)
		return false;
	while ((len = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
		for (long at = 0; at < len; at += ((struct dirent64 *)(entries + at))->d_reclen) {
			const char *name = ((struct dirent64 *)(entries + at))->d_name;

			if (*name != '.')
				found(atoi(name));
		}
	}
	close(folder);
	return true;
}

void lease_note_shared_descriptions(void)
{
	if (!each_descriptor(lease_note_shared_description))
		has_forgotten = true;
}

static void keep_over_exec(int fd)
{
	if (fd >= FD_FIRST && may_have_locks(fd))
		fcntl(fd, F_SETFD, 0);
}

void lease_keep_locks_over_exec(void)
{
	each_descriptor(keep_over_exec);
}

/* ---- The thread that watches leases ---- */

static void *watch_leases(void *unused)
{
	const struct timespec retry = { 0, RETRY_NS };
	bool is_done = true;
	sigset_t set;

	(void)unused;
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	watcher.thread = (pid_t)syscall(SYS_gettid);
	sem_post(&watcher.started);
	/* One signal may stand for several openers, so every lease is checked. */
	for (;;) {
		sigtimedwait(&set, NULL, is_done ? NULL : &retry);
		is_done = region_yield_broken();
	}
	return NULL;
}

/* The thread blocks all signals. The kernel sends SIGIO to this thread only, so the program does
 * not see it. */
static bool start_watcher(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int err;

	if (watcher.process == getpid())
		return true;
	sem_init(&watcher.started, 0, 0);
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, watch_leases, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return false;
	while (sem_wait(&watcher.started) < 0 && errno == EINTR)
		;
	watcher.process = getpid();
	return true;
}

/* ---- Leases ---- */

bool lease_is_broken(const struct lease *lease)
{
	return fcntl(lease->fd, F_GETLEASE) != lease->type;
}

static struct lease *find_lease(const struct stat *st)
{
	struct lease *lease = leases;

	while (lease && (lease->ino != st->st_ino || lease->dev != st->st_dev))
		lease = lease->next;
	return lease;
}

/* Opens a description of the library's own, for reading. */
static int reopen_for_loads(int fd)
{
	char path[FD_PATH_BYTES];
	int own;

	fd_path(path, fd);
	own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return own < 0 ? -1 : move_away(own);
}

/* Returns a descriptor on which a lease of the type can be set, or -1 with a reason. */
static int lease_descriptor(int fd, int type, const struct stat *st, enum left_reason *why)
{
	int own;

	*why = LEFT_OPEN;
	if (type == F_RDLCK)
		return reopen_for_loads(fd);
	if (has_forgotten || is_shared_description(st))
		return *why = LEFT_DESCRIPTION, -1;
	if (fcntl(fd, F_GETFL) & (O_APPEND | O_DIRECT))
		return *why = LEFT_FLAGS, -1;
	own = fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);
	return own < 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : own;
}

static enum left_reason explain_refusal(int error)
{
	return error == EAGAIN ? LEFT_OPEN : error == EACCES ? LEFT_OWNER : LEFT_NO_LEASES;
}

static struct lease *set_lease(int fd, int type, const struct stat *st, enum left_reason *why)
{
	struct f_owner_ex owner = { F_OWNER_TID, watcher.thread };
	struct lease *lease = malloc(sizeof(*lease));

	if (lease && fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETLEASE, type) == 0) {
		*lease = (struct lease){ st->st_dev, st->st_ino, fd, type, 1, leases };
		leases = lease;
		return lease;
	}
	*why = explain_refusal(errno);
	free(lease);
	close_unless_locked(fd);
	return NULL;
}

struct lease *lease_take(int fd, bool writable, const struct stat *st, enum left_reason *why)
{
	int type = writable || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY ? F_WRLCK :
		   F_RDLCK, own;
	struct lease *lease = find_lease(st);

	*why = LEFT_OPEN;
	if (lease) {
		if (lease_is_broken(lease) || lease->type != type)
			return NULL;
		lease->users++;
		return lease;
	}
	if (!start_watcher())
		return *why = LEFT_NO_LEASES, NULL;
	own = lease_descriptor(fd, type, st, why);
	return own < 0 ? NULL : set_lease(own, type, st, why);
}

void lease_drop(struct lease *lease)
{
	struct lease **at = &leases;

	if (--lease->users)
		return;
	while (*at != lease)
		at = &(*at)->next;
	*at = lease->next;
	fcntl(lease->fd, F_SETLEASE, F_UNLCK);
	close_unless_locked(lease->fd);
	free(lease);
}

void lease_forget_all(void)
{
	struct lease *next;

	for (struct lease *lease = leases; lease; lease = next) {
		next = lease->next;
		close(lease->fd);
		free(lease);
	}
	leases = NULL;
	for (size_t i = 0; i < parked.count; i++)
		close(parked.fd[i]);
	parked.count = 0;
}
