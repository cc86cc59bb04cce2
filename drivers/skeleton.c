/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * skeleton - a complete driver from which you can start your own. It transfers to a plain file by
 * pread(2) and pwrite(2), and is not part of the library. Copy this file. Replace the name
 * "skeleton" in the file, in the table at its end, and in the name of the shared object. Then
 * replace the file by your store:
 *
 *     cc -shared -fPIC $(pkg-config --cflags ummap) -o ummap-driver-skeleton.so skeleton.c
 *     UMMAP_DRIVER_PATH=$PWD program
 *
 * The program can now map skeleton:/data/a or skeleton:/data/a?mode=600. ummap-driver(3) explains
 * the interface, and ummap-driver-calls(3) each call. Check your driver by ummap-conform(1).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <ummap-driver.h>

/* A handle. It never changes after open, so any number of threads may use it at the same time. */
struct file {
	int fd; /* descriptor of the file */
};

/* Checks the values of the URI's keys. The library has already refused keys that the table does not
 * list, and keys that occur twice. */
static int parse_keys(const struct ummap_uri *uri, mode_t *mode, struct ummap_geom *geom)
{
	*mode = 0666;
	for (unsigned i = 0; i < uri->nkeys; i++) {
		char *end;
		unsigned long n = strtoul(uri->keys[i].value, &end, 8);

		if (end == uri->keys[i].value || *end || n > 0777) {
			snprintf(geom->why, sizeof(geom->why), "cannot use mode='%.140s': it must "
				 "be an octal number from 0 to 777", uri->keys[i].value);
			return -EINVAL;
		}
		*mode = (mode_t)n;
	}
	return 0;
}

/* Makes a handle that owns fd, and describes it in *geom. Closes fd if it fails. */
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
	/* pread and pwrite are system calls, which a signal handler may make. A driver that
	 * allocates memory, prints or takes locks must not set UMMAP_CAP_FAULTSAFE: a thread of the
	 * library then makes its calls. */
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	*h = f;
	return 0;
}

static int skeleton_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	int flags = (oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY) |
		    (oflags & UMMAP_O_CREATE ? O_CREAT : 0);
	mode_t mode;
	int fd, err = parse_keys(uri, &mode, geom);

	if (err)
		return err;
	/* O_NONBLOCK: opening a pipe must not wait; make_handle then refuses the pipe. */
	fd = open(uri->path, flags | O_CLOEXEC | O_NONBLOCK, mode);
	return fd < 0 ? -errno : make_handle(fd, oflags, h, geom);
}

/* Serves ummap(3) with UMMAP_DRIVER=skeleton. The caller keeps fd; the handle has a duplicate. */
static int skeleton_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			    struct ummap_geom *geom)
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

/* Fills all of buf: continues after a short transfer, and stores zeros for bytes behind the end of
 * the file. */
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

/* Makes earlier writes durable. The call may flush more than the range, here the whole file. */
static int skeleton_flush(void *h, uint64_t off, uint64_t len)
{
	const struct file *f = h;

	(void)off;
	(void)len;
	return fdatasync(f->fd) < 0 ? -errno : 0;
}

/* Asks the kernel each time, because another program may change the size. */
static int skeleton_size(void *h, uint64_t *size)
{
	const struct file *f = h;
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	*size = (uint64_t)st.st_size;
	return 0;
}

/* The only symbol that the shared object exports. Optional calls that the driver lacks are NULL. */
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
