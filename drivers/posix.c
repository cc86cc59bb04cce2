/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver posix: regular files and block devices by synchronous system calls (file.c). */
#include "file.h"

#include "keys.h"
#include "store_check.h"

extern const struct ummap_driver ummap_driver_posix;

static int posix_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct file *f = NULL;
	int err = file_open(uri, oflags, S_IFBLK, store_check(oflags), &f, geom);

	*h = f;
	return err;
}

static int posix_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			 struct ummap_geom *geom)
{
	struct file *f = NULL;
	int err = file_open_fd(uri, fd, oflags, S_IFBLK, &f, geom);

	*h = f;
	return err;
}

const struct ummap_driver ummap_driver_posix = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "posix",
	.keys = POSIX_KEYS(KEY_NAME),
	.help = "a file or block device, by direct transfers if possible "
		"(direct=auto|always|never, cached=auto|map|copy, fd=N)",
	.open = posix_open,
	.open_fd = posix_open_fd,
	.close = file_close,
	FILE_CALLS
};
