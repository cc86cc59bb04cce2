/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * skeleton - a start for drivers of your own: a plain file by pread(2) and pwrite(2). It is complete, but no
 * part of the library. Copy it, change the name in three places (here, in the table and in the name of the
 * file that you make of it), and put your store where the file is:
 *
 *     cc -shared -fPIC $(pkg-config --cflags ummap) -o ummap-driver-skeleton.so skeleton.c
 *     UMMAP_DRIVER_PATH=$PWD program          # which maps skeleton:/data/a, or skeleton:/data/a?mode=600
 *
 * ummap-driver(3) says what each call has to do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <ummap-driver.h>

/* A handle: whatever the calls need. This one does not change, so that any number of threads may use it. */
struct file {
	int fd;
};

/* The library has refused keys that the table does not name, and names that stand twice; values are ours. */
static int parse_keys(const struct ummap_uri *uri, mode_t *mode, struct ummap_geom *geom)
{
	*mode = 0666;
	for (unsigned i = 0; i < uri->nkeys; i++) {
		char *end;
		unsigned long n = strtoul(uri->keys[i].value, &end, 8);

		if (end == uri->keys[i].value || *end || n > 0777) {
			snprintf(geom->why, sizeof(geom->why), "mode is \"%.140s\": it must be 0 to 777, octal",
				 uri->keys[i].value);
			return -EINVAL;
		}
		*mode = (mode_t)n;
	}
	return 0;
}

/* Takes over fd, and says what the handle can do. */
static int make_handle(int fd, int oflags, void **h, struct ummap_geom *geom)
{
	struct file *f = malloc(sizeof(*f));
	struct stat st;
	int err = 0;

	if (!f || fstat(fd, &st) < 0)
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -ENODEV;
	if (err) {
		free(f);
		close(fd);
		return err;
	}
	f->fd = fd;
	geom->size = (uint64_t)st.st_size;
	geom->align = 1;
	geom->id[0] = st.st_ino;
	geom->id[1] = st.st_dev;
	/* pread and pwrite keep no state, and are system calls only: safe in a signal handler. A driver that
	 * allocates memory, prints, or takes locks must leave FAULTSAFE out; a thread of the library calls it. */
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	*h = f;
	return 0;
}

static int skeleton_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	int flags = (oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY) | (oflags & UMMAP_O_CREATE ? O_CREAT : 0);
	mode_t mode;
	int fd, err = parse_keys(uri, &mode, geom);

	if (err)
		return err;
	/* Not waiting, in case that it is a pipe, which make_handle refuses. */
	fd = open(uri->path, flags | O_CLOEXEC | O_NONBLOCK, mode);
	return fd < 0 ? -errno : make_handle(fd, oflags, h, geom);
}

/* For ummap(3), with UMMAP_DRIVER=skeleton: the caller keeps fd, so this driver needs one of its own. */
static int skeleton_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	int flags = fcntl(fd, F_GETFL), wanted = oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY, own;

	(void)uri;
	if (flags < 0)
		return -errno;
	if ((flags & O_ACCMODE) != O_RDWR && (flags & O_ACCMODE) != wanted)
		return -EACCES;
	if (flags & O_APPEND) {
		snprintf(geom->why, sizeof(geom->why), "cannot use the descriptor %d: it has "
			 "O_APPEND, so pwrite(2) would not write in place", fd);
		return -EINVAL;
	}
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return own < 0 ? -errno : make_handle(own, oflags, h, geom);
}

static int skeleton_close(void *h)
{
	struct file *f = h;
	int err = close(f->fd) < 0 ? -errno : 0;

	free(f);
	return err;
}

/* All of it: the rest of a short transfer too, and zeros for what lies beyond the end. */
static int skeleton_read(void *h, void *buf, size_t len, uint64_t off)
{
	const struct file *f = h;

	while (len > 0) {
		ssize_t n = pread(f->fd, buf, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) {
			memset(buf, 0, len);
			return 0;
		}
		buf = (char *)buf + n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

static int skeleton_write(void *h, const void *buf, size_t len, uint64_t off)
{
	const struct file *f = h;

	while (len > 0) {
		ssize_t n = pwrite(f->fd, buf, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf = (const char *)buf + n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

/* Durable. More than was asked for is fine. */
static int skeleton_flush(void *h, uint64_t off, uint64_t len)
{
	const struct file *f = h;

	(void)off;
	(void)len;
	return fdatasync(f->fd) < 0 ? -errno : 0;
}

/* Another program may have changed it. */
static int skeleton_size(void *h, uint64_t *size)
{
	const struct file *f = h;
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	*size = (uint64_t)st.st_size;
	return 0;
}

/* The only name that the file exports. Calls that are not here are NULL: they are optional. */
const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "skeleton",
	.keys = "mode",
	.help = "skeleton:PATH?mode=OCTAL  a plain file",
	.open = skeleton_open,
	.open_fd = skeleton_open_fd,
	.close = skeleton_close,
	.read = skeleton_read,
	.write = skeleton_write,
	.flush = skeleton_flush,
	.size = skeleton_size,
};
