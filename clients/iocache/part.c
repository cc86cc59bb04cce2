/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is far behind a node's cache. As a store it has the size of the whole share, however short the file is: what is behind the
 * end of the file reads as zeros, without asking for it, and what is written behind the end that the file is to have is nobody's,
 * for caches write whole segments. The first write is noted in the head before: from then on, a file that has changed may have
 * been changed by this cache.
 */
#include "iocache/part.h"

#include "iocache/head.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap-driver.h>
#include <unistd.h>

#define GOOD_TRANSFER (1 << 20)

struct part {
	struct head_file *file;
	int fd;
	pid_t pid;               /* of the process that has opened it */
	_Atomic uint64_t reach;  /* no byte of this share is in the file behind that: nobody else writes these */
};

static int part_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	bool writing = oflags & UMMAP_O_WRITE;
	struct stat st;
	struct part *p = calloc(1, sizeof(*p));
	int err = p ? head_open(uri->path, NULL, &p->file) : -ENOMEM;

	if (err) {
		free(p);
		return err;
	}
	p->pid = getpid();
	p->fd = open(p->file->head.path, (writing ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	/* Who only reads has nothing to write back. */
	if (p->fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM))
		p->fd = open(p->file->head.path, O_RDONLY | O_CLOEXEC);
	if (p->fd < 0 || fstat(p->fd, &st) < 0) {
		err = -errno;
		if (p->fd >= 0)
			close(p->fd);
		head_close(p->file);
		free(p);
		return err;
	}
	p->reach = (uint64_t)st.st_size;
	geom->size = p->file->head.spread.room;
	geom->align = 1;
	geom->optimal = GOOD_TRANSFER;
	geom->caps = UMMAP_CAP_PARALLEL | (writing ? UMMAP_CAP_WRITE : 0);
	*h = p;
	return 0;
}

static int part_close(void *h)
{
	struct part *p = h;

	if (p->pid != getpid())
		return 0;
	close(p->fd);
	head_close(p->file);
	free(p);
	return 0;
}

/* A run of the file; what is behind its end are zeros. */
static int read_run(int fd, char *buf, size_t len, uint64_t off)
{
	while (len > 0) {
		ssize_t n = pread(fd, buf, len, (off_t)off);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0) {
			memset(buf, 0, len);
			return 0;
		}
		n = n < 0 ? 0 : n;
		buf += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int part_read(void *h, void *buf, size_t len, uint64_t at)
{
	struct part *p = h;
	const struct spread *s = &p->file->head.spread;
	uint64_t run;
	int err = 0;

	for (size_t done = 0; done < len && !err; done += run) {
		uint64_t off = spread_place(s, p->file->head.node, at + done, &run);

		run = run < len - done ? run : len - done;
		if (off < p->reach)
			err = read_run(p->fd, (char *)buf + done, run, off);
		else
			memset((char *)buf + done, 0, run);
	}
	return err;
}

static void note_reach(struct part *p, uint64_t end)
{
	uint64_t reach = p->reach;

	while (reach < end && !atomic_compare_exchange_weak(&p->reach, &reach, end))
		;
}

static int write_run(int fd, const char *buf, size_t len, uint64_t off)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, buf, len, (off_t)off);

		if (n == 0)
			return -ENOSPC;
		if (n < 0 && errno != EINTR)
			return errno == EBADF ? -EROFS : -errno;
		n = n < 0 ? 0 : n;
		buf += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* Begins a write: *end is as far as the file is to reach, and the head has noted that the file is written. */
static int begin_write(struct head_file *file, uint64_t *end)
{
	int err = 0;

	pthread_mutex_lock(&file->lock);
	*end = file->end ? (uint64_t)atomic_load(file->end) : file->head.end;
	if (*end < file->head.facts.size)
		*end = file->head.facts.size;
	if (!file->head.wrote) {
		file->head.wrote = 1;
		err = head_write(file);
		file->head.wrote = !err;
	}
	file->writing += !err;
	pthread_mutex_unlock(&file->lock);
	return err;
}

static void end_write(struct head_file *file)
{
	pthread_mutex_lock(&file->lock);
	if (--file->writing == 0)
		pthread_cond_broadcast(&file->idle);
	pthread_mutex_unlock(&file->lock);
}

static int result(struct part *p, int err)
{
	if (err) {
		pthread_mutex_lock(&p->file->lock);
		p->file->failed = -err;
		pthread_mutex_unlock(&p->file->lock);
	}
	return err;
}

static int part_write(void *h, const void *buf, size_t len, uint64_t at)
{
	struct part *p = h;
	const struct spread *s = &p->file->head.spread;
	uint64_t run, end;
	int err = begin_write(p->file, &end);

	if (err)
		return result(p, err);
	for (size_t done = 0; done < len && !err; done += run) {
		uint64_t off = spread_place(s, p->file->head.node, at + done, &run);

		run = run < len - done ? run : len - done;
		if (off >= end)
			continue;
		note_reach(p, off + run < end ? off + run : end);
		err = write_run(p->fd, (const char *)buf + done, run < end - off ? run : end - off, off);
	}
	end_write(p->file);
	return result(p, err);
}

static int part_flush(void *h, uint64_t off, uint64_t len)
{
	struct part *p = h;

	(void)off, (void)len;
	return result(p, fdatasync(p->fd) < 0 ? -errno : 0);
}

/* For a cache that is filled ahead. */
static int part_data(void *h, uint64_t at, uint64_t *begin, uint64_t *end)
{
	struct part *p = h;
	uint64_t size = spread_size(&p->file->head.spread, p->file->head.node, p->reach);

	*begin = at < size ? at : UINT64_MAX;
	*end = size;
	return 0;
}

static const struct ummap_driver driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "filepart",
	.help = "filepart:HEAD  the share of a file that a cache of MPI-IO has",
	.open = part_open,
	.close = part_close,
	.read = part_read,
	.write = part_write,
	.flush = part_flush,
	.data = part_data,
};

void part_register(void)
{
	ummap_driver_register(&driver);
}
