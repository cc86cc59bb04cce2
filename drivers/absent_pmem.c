/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for pmem.c in a library that was built without libpmem2: says so, and opens nothing. */
#include "ummap-driver.h"

#include <errno.h>
#include <stdio.h>

extern const struct ummap_driver ummap_driver_pmem;

static int absent_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri;
	(void)oflags;
	(void)h;
	snprintf(geom->why, sizeof(geom->why), "this library was built without libpmem2, so it has no driver "
		 "\"pmem\": install libpmem2-dev and build it again");
	return -EINVAL;
}

static int absent_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	(void)fd;
	return absent_open(uri, oflags, h, geom);
}

/* Never called, but a table without them is refused with another sentence. */
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

const struct ummap_driver ummap_driver_pmem = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "pmem",
	.keys = "granularity",
	.help = "persistent memory: not built in",
	.open = absent_open,
	.open_fd = absent_open_fd,
	.close = absent_close,
	.read = absent_read,
};
