/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/lock.h"

#include "common/try_lock.h"
#include "mapreduce/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_LOCK_RETRIES 250
#define RETRY_SLEEP_NS 20000000

static int report_owner(const struct lock *l, const char *folder)
{
	char owner[200] = "";

	/* The file is empty if the owner has not signed it yet, or could not on a full disk. */
	if (pread(l->fd, owner, sizeof(owner) - 1, 0) <= 0)
		snprintf(owner, sizeof(owner), "unknown");
	return set_error(EBUSY, "cannot use the folder '%s': another job uses it, in %s (lock file "
			 "'%s'). Try again when that job has ended, or another folder", folder,
			 owner, l->path);
}

static int lock_file(const struct lock *l, const char *folder)
{
	const struct timespec pause = { 0, RETRY_SLEEP_NS };

	for (int tries = 0, err; (err = try_lock_file(l->fd, LOCK_EX)) != 0; tries++) {
		if (err != -EBUSY)
			return set_error(-err, "cannot lock '%s': %m", l->path);
		if (tries == MAX_LOCK_RETRIES)
			return report_owner(l, folder);
		nanosleep(&pause, NULL);
	}
	return 0;
}

static void write_owner(const struct lock *l)
{
	char host[100] = "", owner[200];
	int size;

	gethostname(host, sizeof(host) - 1);
	size = snprintf(owner, sizeof(owner), "process %d of %.60s on %s", (int)getpid(),
			program_invocation_short_name, host);
	/* The text serves only the error message of another job, so a failure is ignored. */
	if (ftruncate(l->fd, 0) < 0 || pwrite(l->fd, owner, (size_t)size, 0) < size)
		return;
}

static void close_lock(struct lock *l)
{
	if (l->fd >= 0)
		close(l->fd);
	free(l->path);
	*l = (struct lock){ NULL, -1 };
}

int lock_take(struct lock *l, const char *folder, int rank)
{
	if (asprintf(&l->path, "%s/ummr.lock.%d", folder, rank) < 0) {
		l->path = NULL;
		return set_error(ENOMEM, "cannot lock a folder: no memory for the name of the lock "
				 "file");
	}
	do {
		l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (l->fd < 0)
			set_error(errno, "cannot open '%s': %m", l->path);
		if (l->fd < 0 || lock_file(l, folder) < 0) {
			close_lock(l);
			return -1;
		}
		/* The job that had the lock before may have removed the file. */
		if (file_has_name(l->fd, AT_FDCWD, l->path))
			break;
		close(l->fd);
	} while (true);
	write_owner(l);
	return 0;
}

/* The file is removed while it is locked, so that a job that waits for the lock notices it. */
void lock_release(struct lock *l)
{
	if (l->path)
		unlink(l->path);
	close_lock(l);
}
