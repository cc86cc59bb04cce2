/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replaces a driver whose library was missing when libummap was built: each open fails and names
 * that library. The Makefile compiles this file for each such driver, with TABLE, SCHEME, KEYS (a
 * macro of key_tables.h) and LIBRARY.
 */
#include "key_tables.h"
#include "ummap-driver.h"

#include <errno.h>
#include <stdio.h>

extern const struct ummap_driver TABLE;

static int absent_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri;
	(void)oflags;
	(void)h;
	snprintf(geom->why, sizeof(geom->why), "cannot use the driver '" SCHEME "': this library "
		 "was built without " LIBRARY ". Try to install its development package and to "
		 "build the library again");
	return -EOPNOTSUPP;
}

static int absent_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			  struct ummap_geom *geom)
{
	(void)fd;
	return absent_open(uri, oflags, h, geom);
}

/* These calls never run, but the library requires them in each table. */
static int absent_close(void *h)
{
	(void)h;
	return 0;
}

static int absent_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h;
	(void)buf;
	(void)len;
	(void)off;
	return -ENODEV;
}

const struct ummap_driver TABLE = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = SCHEME,
	.keys = KEYS(KEY_NAME),
	.help = "not built in: " LIBRARY " was missing",
	.open = absent_open,
	.open_fd = absent_open_fd,
	.close = absent_close,
	.read = absent_read,
};
