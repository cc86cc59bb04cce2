/* SPDX-License-Identifier: BSD-3-Clause */
/* Two slots are written in turn, so that a failed write leaves the previous header. */
#include "iocache/head.h"

#include "common/fd_path.h"
#include "common/try_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC 0x31646165686d6d75ull
#define SLOT 4096

_Static_assert(sizeof(struct head) <= SLOT, "a head has to fit into its slot");

static uint64_t sum_of(const struct head *head)
{
	return XXH3_64bits(head, offsetof(struct head, sum));
}

/* Whether a slot contains a complete header. */
static bool is_whole(const struct head *head)
{
	return head->magic == MAGIC && head->sum == sum_of(head) &&
	       memchr(head->path, '\0', sizeof(head->path)) && head->spread.nodes > 0 &&
	       head->spread.stripe > 0 && head->node < head->spread.nodes;
}

static int read_slots(int fd, struct head *head)
{
	struct head slot;
	int err = -EUCLEAN;

	for (int i = 0; i < 2; i++) {
		ssize_t n = pread(fd, &slot, sizeof(slot), i * SLOT);

		if (n < 0)
			return -errno;
		if (n != sizeof(slot) || !is_whole(&slot) || (!err && slot.number < head->number))
			continue;
		*head = slot;
		err = 0;
	}
	return err;
}

int head_read(const char *path, struct head *head)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = read_slots(fd, head);
	close(fd);
	return err;
}

int head_write(struct head_file *file)
{
	struct head *head = &file->head;
	ssize_t n;
	int err;

	head->magic = MAGIC;
	head->number++;
	head->sum = sum_of(head);
	n = pwrite(file->fd, head, sizeof(*head), (off_t)(head->number & 1) * SLOT);
	err = n < 0 ? -errno : n != sizeof(*head) ? -ENOSPC : fdatasync(file->fd) < 0 ? -errno : 0;
	/* The slot may have changed in part, so the next write uses it again. */
	if (err)
		head->number--;
	return err;
}

/* A new header gets its name when it is complete, so that a job that dies before leaves no file. */
static int begin_unnamed(struct head_file *file, const struct head *made)
{
	const char *slash = strrchr(file->path, '/');
	char *folder = slash ? strndup(file->path, (size_t)(slash - file->path) + 1) : strdup(".");
	char unnamed[FD_PATH_BYTES];
	int err;

	if (!folder)
		return -ENOMEM;
	if (access(file->path, F_OK) < 0)
		file->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	free(folder);
	if (file->fd < 0)
		return -EOPNOTSUPP;
	err = try_lock_file(file->fd, LOCK_EX);
	if (err)
		return err;
	file->head = *made;
	err = head_write(file);
	fd_path(unnamed, file->fd);
	if (!err && linkat(AT_FDCWD, unnamed, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) < 0)
		err = errno == EEXIST ? -EBUSY : -errno;
	return err;
}

/* Opens and locks a header, or creates it. */
static int begin(struct head_file *file, const struct head *made)
{
	int err = made ? begin_unnamed(file, made) : -EOPNOTSUPP;

	/* The header exists, or the file system does not support O_TMPFILE. */
	if (err != -EOPNOTSUPP)
		return err;
	file->fd = open(file->path, O_RDWR | O_CLOEXEC | (made ? O_CREAT : 0), 0600);
	if (file->fd < 0)
		return -errno;
	err = try_lock_file(file->fd, LOCK_EX);
	if (err)
		return err;
	if (!made)
		return read_slots(file->fd, &file->head);
	file->head = *made;
	return head_write(file);
}

void head_close(struct head_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	pthread_mutex_destroy(&file->lock);
	pthread_cond_destroy(&file->idle);
	free(file->path);
	free(file);
}

int head_open(const char *path, const struct head *made, struct head_file **file)
{
	struct head_file *f = calloc(1, sizeof(*f));
	int err = -ENOMEM;

	*file = NULL;
	if (!f)
		return err;
	f->fd = -1;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->idle, NULL);
	f->path = strdup(path);
	if (f->path)
		err = begin(f, made);
	if (err)
		head_close(f);
	else
		*file = f;
	return err;
}
