/* SPDX-License-Identifier: BSD-3-Clause */
/* Lock: around the list of open headers. It is never held together with the lock of a header. */
#include "iocache/head.h"

#include "common/try_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x32646165686d6d75ull /* "ummhead2" */

_Static_assert(sizeof(struct head) <= HEADER_BODY_MAX, "a head has to fit into its slot");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head_file *files;

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

static struct head_file *find(const char *path)
{
	struct head_file *file = files;

	while (file && strcmp(file->path, path) != 0)
		file = file->next;
	return file;
}

/* A new one gets its name when it is whole: a job that dies before leaves nothing. */
static int begin_unnamed(struct head_file *file, const struct head *made)
{
	const char *slash = strrchr(file->path, '/');
	char *folder = slash ? strndup(file->path, (size_t)(slash - file->path) + 1) : strdup(".");
	char unnamed[32];
	int err;

	if (!folder)
		return -ENOMEM;
	file->fd = access(file->path, F_OK) == 0 ? -1 : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	free(folder);
	if (file->fd < 0)
		return -EOPNOTSUPP;
	err = try_lock_file(file->fd, LOCK_EX);
	if (err)
		return err;
	file->head = *made;
	err = head_write(file);
	snprintf(unnamed, sizeof(unnamed), "/proc/self/fd/%d", file->fd);
	if (!err && linkat(AT_FDCWD, unnamed, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) < 0)
		err = errno == EEXIST ? -EBUSY : -errno;
	return err;
}

/* Opens and locks it. */
static int begin(struct head_file *file, const struct head *made)
{
	int err = made ? begin_unnamed(file, made) : -EOPNOTSUPP;

	/* It is there, or the file system has no files without a name. */
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

static int add(const char *path, const struct head *made, struct head_file **result)
{
	struct head_file *file = calloc(1, sizeof(*file));
	int err = -ENOMEM;

	if (!file)
		return err;
	file->fd = -1;
	file->header = empty;
	pthread_mutex_init(&file->lock, NULL);
	pthread_cond_init(&file->idle, NULL);
	file->path = strdup(path);
	if (file->path)
		err = begin(file, made);
	if (err) {
		if (file->fd >= 0)
			close(file->fd);
		free(file->path);
		free(file);
		return err;
	}
	file->users = 1;
	file->next = files;
	files = file;
	*result = file;
	return 0;
}

int head_open(const char *path, const struct head *made, struct head_file **file)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	*file = find(path);
	if (*file && made)
		err = -EBUSY;
	else if (*file)
		(*file)->users++;
	else
		err = add(path, made, file);
	pthread_mutex_unlock(&lock);
	return err;
}

void head_close(struct head_file *file)
{
	struct head_file **at = &files;

	pthread_mutex_lock(&lock);
	if (--file->users > 0) {
		pthread_mutex_unlock(&lock);
		return;
	}
	while (*at != file)
		at = &(*at)->next;
	*at = file->next;
	pthread_mutex_unlock(&lock);
	close(file->fd);
	pthread_mutex_destroy(&file->lock);
	pthread_cond_destroy(&file->idle);
	free(file->path);
	free(file);
}
