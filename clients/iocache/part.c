/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The far store behind a node's cache. It always has the size of the whole part. Bytes beyond the
 * end of the file read as zeros without access to the file. Writes beyond the end that the file is
 * to have are dropped, because caches write whole segments. Before the first write, the header
 * notes that the file is written: a file that has changed afterwards may have been changed by this
 * cache.
 */
#include "iocache/part.h"

#include "common/uri_encode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPTIMAL_BYTES (1 << 20)

/* The URI of a part, which leads to the open header. */
struct part_uri {
	struct ummap_uri uri;
	struct head_file *head;
};

struct part {
	struct head_file *file;  /* header of the part */
	int fd;                  /* descriptor of the file */
	pid_t pid;               /* process that has opened the part */
	_Atomic uint64_t reach;  /* end of the file, as far as this part's bytes are concerned */
};

static int part_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	bool writing = oflags & UMMAP_O_WRITE;
	struct stat st;
	struct part *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->file = ((const struct part_uri *)(const void *)uri)->head;
	p->pid = getpid();
	p->fd = open(p->file->head.path, (writing ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	/* A job that only reads has nothing to write back. */
	if (p->fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM))
		p->fd = open(p->file->head.path, O_RDONLY | O_CLOEXEC);
	if (p->fd < 0 || fstat(p->fd, &st) < 0) {
		err = -errno;
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return err;
	}
	p->reach = (uint64_t)st.st_size;
	geom->size = p->file->head.spread.room;
	geom->align = 1;
	geom->optimal = OPTIMAL_BYTES;
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
	free(p);
	return 0;
}

/* Reads a run of the file; bytes beyond its end are zeros. */
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

/* Begins a write: *end is the end that the file is to have, and the header notes the write. */
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

/* Notes the error of a write in the header, for share_close. */
static int note_error(struct part *p, int err)
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
		return note_error(p, err);
	for (size_t done = 0; done < len && !err; done += run) {
		uint64_t off = spread_place(s, p->file->head.node, at + done, &run);

		run = run < len - done ? run : len - done;
		if (off >= end)
			continue;
		note_reach(p, off + run < end ? off + run : end);
		err = write_run(p->fd, (const char *)buf + done, run < end - off ? run : end - off,
				off);
	}
	end_write(p->file);
	return note_error(p, err);
}

static int part_flush(void *h, uint64_t off, uint64_t len)
{
	struct part *p = h;

	(void)off, (void)len;
	return note_error(p, fdatasync(p->fd) < 0 ? -errno : 0);
}

/* For cache.populate: only the bytes of the file are worth reading. */
static int part_data(void *h, uint64_t at, uint64_t *begin, uint64_t *end)
{
	struct part *p = h;
	uint64_t size = spread_size(&p->file->head.spread, p->file->head.node, p->reach);

	*begin = at < size ? at : UINT64_MAX;
	*end = size;
	return 0;
}

static const struct ummap_driver part_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "filepart",
	.open = part_open,
	.close = part_close,
	.read = part_read,
	.write = part_write,
	.flush = part_flush,
	.data = part_data,
};

int part_open_behind(const char *filters, struct head_file *head, struct ummap_driver *driver,
		     void **h, struct ummap_geom *geom)
{
	const struct part_uri to = { { .scheme = part_driver.scheme, .path = head->path }, head };

	driver->struct_size = sizeof(*driver);
	return ummap_driver_open_filters(filters, &part_driver, &to.uri, UMMAP_O_WRITE, driver, h,
					 geom);
}

int part_flush_near(const char *near, struct head_file *head, bool *opened)
{
	struct ummap_driver driver;
	struct ummap_geom geom;
	char filters[PART_URI_BYTES];
	size_t len = (size_t)snprintf(filters, sizeof(filters), "cache:?cache.path=");
	void *h;

	uri_encode(filters + len, sizeof(filters) - len, near);
	*opened = part_open_behind(filters, head, &driver, &h, &geom) == 0;
	return *opened ? driver.close(h) : -errno;
}
