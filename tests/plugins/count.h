/* SPDX-License-Identifier: BSD-3-Clause */
/* A read-only store whose size is its path, and whose byte n is n modulo 251. */
#ifndef TESTS_PLUGINS_COUNT_H
#define TESTS_PLUGINS_COUNT_H

#include <ummap-driver.h>

#include <stdlib.h>

static inline int count_open(const struct ummap_uri *uri, int oflags, void **h,
			     struct ummap_geom *geom)
{
	static char handle;

	(void)oflags;
	geom->size = strtoull(uri->path, NULL, 10);
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	*h = &handle;
	return 0;
}

static inline int count_close(void *h)
{
	(void)h;
	return 0;
}

static inline int count_read(void *h, void *buf, size_t len, uint64_t off)
{
	unsigned char *bytes = buf;

	(void)h;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)((off + i) % 251);
	return 0;
}

#endif
