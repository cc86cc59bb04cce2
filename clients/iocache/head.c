/* SPDX-License-Identifier: BSD-3-Clause */
#include "iocache/head.h"

#include "common/fd_path.h"
#include "common/try_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x32646165686d6d75ull /* "ummhead2" */

_Static_assert(sizeof(struct head) <= HEADER_BODY_MAX, "a head has to fit into its slot");

static int read_file(void *fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n = pread(*(int *)fd, buf, len, (off_t)off);

	if (n < 0)
		return -errno;
	memset((char *)buf + n, 0, len - (size_t)n);
	return 0;
}

static int write_file(void *fd, const void *buf, size_t len, uint64_t off)
{
	ssize_t n = pwrite(*(int *)fd, buf, len, (off_t)off);

	return n < 0 ? -errno : (size_t)n < len ? -ENOSPC : 0;
}

static int flush_file(void *fd)
{
	return fdatasync(*(int *)fd) < 0 ? -errno : 0;
}

static const struct header_calls calls = {
	.read = read_file,
	.write = write_file,
	.flush = flush_file,
};

static const struct header empty = { .calls = &calls, .magic = MAGIC };

static int read_head(int fd, struct header *header, struct head *head)
{
	int err = header_read(header, &fd, head, sizeof(*head));
	bool is_valid = !err && memchr(head->path, '\0', sizeof(head->path)) &&
			head->spread.nodes > 0 && head->spread.stripe > 0 &&
			head->node < head->spread.nodes;

	return is_valid ? 0 : !err || err == -ENODATA ? -EUCLEAN : err;
}

int head_read(const char *path, struct head *head)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;
	struct header header = empty;

	if (fd < 0)
		return -errno;
	err = read_head(fd, &header, head);
	close(fd);
	return err;
}

int head_write(struct head_file *file)
{
	return header_write_durable(&file->header, &file->fd, &file->head, sizeof(file->head));
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
	err = read_head(file->fd, &file->header, &file->head);
	if (!made)
		return err;
	/* The new header follows those of an earlier job, whose numbers it continues. */
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
	f->header = empty;
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
