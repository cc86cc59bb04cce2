/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/lock.h"

#include "common/try_lock.h"
#include "mapreduce/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRIES 250

static int in_use(const struct lock *l, const char *folder)
{
	char owner[200] = "";

	/* It may not stand there yet, or a full disk has kept it from that. */
	if (pread(l->fd, owner, sizeof(owner) - 1, 0) <= 0)
		snprintf(owner, sizeof(owner), "unknown");
	return fail(EBUSY, "cannot use the folder '%s': another job uses it, in %s (lock file "
		    "'%s'). Try again when that job has ended, or another folder", folder, owner,
		    l->path);
}

static int lock_file(const struct lock *l, const char *folder)
{
	const struct timespec pause = { 0, 20000000 };

	for (int tries = 0, err; (err = try_lock_file(l->fd, LOCK_EX)) != 0; tries++) {
		if (err != -EBUSY)
			return fail(-err, "cannot lock '%s': %s", l->path, strerror(-err));
		if (tries == TRIES)
			return in_use(l, folder);
		nanosleep(&pause, NULL);
	}
	return 0;
}

static void sign(const struct lock *l)
{
	char host[100] = "", owner[200];
	int size;

	gethostname(host, sizeof(host) - 1);
	size = snprintf(owner, sizeof(owner), "process %d of %.60s on %s", (int)getpid(), program_invocation_short_name, host);
	/* Only others' errors are poorer without it. */
	if (ftruncate(l->fd, 0) < 0 || pwrite(l->fd, owner, (size_t)size, 0) < size)
		return;
}

static void forget(struct lock *l)
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
		return fail(ENOMEM, "cannot lock a folder: no memory for the name of the lock "
			    "file");
	}
	do {
		l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (l->fd < 0)
			fail(errno, "cannot open '%s': %s", l->path, strerror(errno));
		if (l->fd < 0 || lock_file(l, folder) < 0) {
			forget(l);
			return -1;
		}
		/* The job that had the lock before may have removed the file. */
		if (file_has_name(l->fd, AT_FDCWD, l->path))
			break;
		close(l->fd);
	} while (true);
	sign(l);
	return 0;
}

/* Removed while it is locked: whoever waits for it sees that. */
void lock_release(struct lock *l)
{
	if (l->path)
		unlink(l->path);
	forget(l);
}
