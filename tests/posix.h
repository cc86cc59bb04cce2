/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that the tests of the driver posix share: files, handles, and the page cache. */
#ifndef TESTS_POSIX_H
#define TESTS_POSIX_H

#include "ummap-driver.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "loop.h"

extern const struct ummap_driver ummap_driver_posix;
static const struct ummap_driver *const posix = &ummap_driver_posix;

#define COUNT(table) (sizeof(table) / sizeof(*(table)))
#define PAGE 4096
#define MIB ((size_t)1 << 20)

static struct ummap_geom geom; /* geometry of the last handle that was opened */

/* ---- Files ---- */

static inline int temp_file(const char *dir, size_t size)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/test_posix.XXXXXX", dir);
	fd = mkstemp(path);
	cr_assert_geq(fd, 0, "%s", path);
	unlink(path);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static inline void need_root(void)
{
	if (geteuid() != 0)
		cr_skip_test("needs root");
}

/* Returns a loop device, which the kernel removes after its last user. */
static inline int loop_device(size_t size, char *path, size_t room)
{
	int file = temp_file("/var/tmp", size), fd = loop_attach(file);

	cr_assert_geq(fd, 0, "%s", strerror(errno));
	close(file);
	cr_assert(loop_name(fd, path, room));
	return fd;
}

/* Returns a file in a file system of 16 MiB with blocks of 1 KiB, which only this process sees. */
static inline int ext4_file(size_t size)
{
	char device[32], command[80], dir[] = "/tmp/test_posix.XXXXXX";
	int loop = loop_device(16 * MIB, device, sizeof(device)), fd;

	snprintf(command, sizeof(command), "mkfs.ext4 -q -b 1024 %s", device);
	cr_assert_eq(system(command), 0);
	cr_assert(mkdtemp(dir));
	cr_assert_eq(unshare(CLONE_NEWNS), 0);
	cr_assert_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	cr_assert_eq(mount(device, dir, "ext4", 0, NULL), 0);
	fd = temp_file(dir, size);
	umount2(dir, MNT_DETACH);
	rmdir(dir);
	close(loop);
	return fd;
}

/* ---- Handles and bytes ---- */

static inline int try_fd(int fd, int oflags, const char *direct, void **h)
{
	struct ummap_key key = { "direct", direct };
	struct ummap_uri uri = {
		.scheme = "posix", .path = "", .keys = &key, .nkeys = direct != NULL
	};

	memset(&geom, 0, sizeof(geom));
	return posix->open_fd(&uri, fd, oflags, h, &geom);
}

static inline void *open_fd(int fd, int oflags, const char *direct)
{
	void *h = NULL;
	int err = try_fd(fd, oflags, direct, &h);

	cr_assert_eq(err, 0, "%s (%s)", strerror(-err), geom.why);
	return h;
}

static inline int try_path(const char *path, int oflags, const char *direct, void **h)
{
	struct ummap_key key = { "direct", direct };
	struct ummap_uri uri = {
		.scheme = "posix", .path = path, .keys = &key, .nkeys = direct != NULL
	};

	memset(&geom, 0, sizeof(geom));
	return posix->open(&uri, oflags, h, &geom);
}

static inline char *buffer(size_t size)
{
	char *buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(buf, MAP_FAILED);
	return buf;
}

static inline void fill(char *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)rand();
}

static inline void drop_pages(int fd)
{
	cr_assert_eq(fdatasync(fd), 0);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static inline size_t cached_pages(int fd, size_t size)
{
	unsigned char in[1024];
	size_t n = 0;
	void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	cr_assert_leq(size, sizeof(in) * PAGE);
	cr_assert_eq(mincore(map, size, in), 0);
	for (size_t i = 0; i < (size + PAGE - 1) / PAGE; i++)
		n += in[i] & 1;
	munmap(map, size);
	return n;
}

#endif
