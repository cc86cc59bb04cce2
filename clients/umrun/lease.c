/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/lease.h"

#include "common/fd_path.h"
#include "umrun/descriptors.h"
#include "umrun/next_calls.h"

#include <semaphore.h>

/* Time until a failed hand-over is tried again. */
#define RETRY_NS 100000000

static struct lease *leases;
/* Files whose open file descriptions this process may share with another one. */
static struct file_set shared;
/* The list may lack files: any description may be shared. */
static bool has_forgotten;
/* Descriptors that cannot be closed while the program may hold locks of their files. */
#define MAX_PARKED 1024
static struct { int fd[MAX_PARKED]; size_t count; } parked;
/* The thread that the kernel signals when a lease is broken, and its process. */
static struct {
	pid_t process, thread;
	sem_t started;
	bool (*yield)(void);
} watcher;

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
	if (!may_have_locks(fd))
		close(fd);
	else if (parked.count < MAX_PARKED)  /* otherwise the descriptor stays open */
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

/* Without memory for the set, no description gets a write lease any more. */
void lease_note_shared_description(int fd)
{
	struct file_id file;

	if (has_forgotten || !is_open_for_writing(fd) || !file_of(fd, &file) ||
	    file_set_add(&shared, file) == 0)
		return;
	fprintf(stderr, "umrun: cannot track open files: no memory. "
		"Writable mappings stay with the kernel from now on.\n");
	has_forgotten = true;
}

void lease_note_shared_descriptions(void)
{
	has_forgotten |= !descriptors_each(lease_note_shared_description, 0);
}

static void keep_over_exec(int fd)
{
	if (may_have_locks(fd))
		fcntl(fd, F_SETFD, 0);
}

void lease_keep_locks_over_exec(void)
{
	descriptors_each(keep_over_exec, FD_FIRST);
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
		is_done = watcher.yield();
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

void lease_begin(bool (*yield)(void))
{
	watcher.yield = yield;
}

/* Opens a description of the library's own, for reading. */
static int reopen_for_loads(int fd)
{
	char path[32];
	int own;

	snprintf(path, sizeof(path), FD_FOLDER "%d", fd);
	own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return own < 0 ? -1 : move_away(own);
}

/* Returns a descriptor on which a lease of the type can be set, or -1 with a reason. */
static int lease_descriptor(int fd, int type, struct file_id file, enum left_reason *why)
{
	*why = LEFT_OPEN;
	if (type == F_RDLCK)
		return reopen_for_loads(fd);
	if (has_forgotten || file_set_has(&shared, file))
		return *why = LEFT_DESCRIPTION, -1;
	if (fcntl(fd, F_GETFL) & (O_APPEND | O_DIRECT))
		return *why = LEFT_FLAGS, -1;
	return descriptors_copy(fd);
}

static enum left_reason explain_refusal(int error)
{
	return error == EAGAIN ? LEFT_OPEN : error == EACCES ? LEFT_OWNER : LEFT_NO_LEASES;
}

static struct lease *set_lease(int fd, int type, struct file_id file, enum left_reason *why)
{
	struct f_owner_ex owner = { F_OWNER_TID, watcher.thread };
	struct lease *lease = malloc(sizeof(*lease));

	if (lease && fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETLEASE, type) == 0) {
		*lease = (struct lease){ file, fd, type, 1, leases };
		leases = lease;
		return lease;
	}
	*why = explain_refusal(errno);
	free(lease);
	close_unless_locked(fd);
	return NULL;
}

struct lease *lease_take(int fd, struct file_id file, enum left_reason *why)
{
	int type = is_open_for_writing(fd) ? F_WRLCK : F_RDLCK, own;
	struct lease *lease = leases;

	while (lease && !is_same_file(lease->file, file))
		lease = lease->next;
	*why = LEFT_OPEN;
	if (lease) {
		if (lease_is_broken(lease) || lease->type != type)
			return NULL;
		lease->users++;
		return lease;
	}
	if (!start_watcher())
		return *why = LEFT_NO_LEASES, NULL;
	own = lease_descriptor(fd, type, file, why);
	return own < 0 ? NULL : set_lease(own, type, file, why);
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
