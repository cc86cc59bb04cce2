/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver null: a store that keeps no data. Reads return zeros or leave the memory unchanged,
 * and writes are discarded. Measurements over it show the costs of the library. It takes no lock.
 */
#include "ummap-driver.h"

#include "keys.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern const struct ummap_driver ummap_driver_null;

struct null {
	uint64_t size;   /* size in bytes */
	bool writable;   /* whether the handle may write */
	bool fill;       /* whether reads return zeros; otherwise, they change no memory */
};

static int null_read(void *h, void *buf, size_t len, uint64_t off)
{
	const struct null *n = h;

	(void)off;
	if (n->fill)
		memset(buf, 0, len);
	return 0;
}

static int null_write(void *h, const void *buf, size_t len, uint64_t off)
{
	const struct null *n = h;

	(void)buf;
	if (!n->writable)
		return -EBADF;
	return off > n->size || len > n->size - off ? -ENOSPC : 0;
}

static int null_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	for (int i = 0; i < n; i++)
		null_read(h, iov[i].iov_base, iov[i].iov_len, off);
	return 0;
}

static int null_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	return null_write(h, NULL, len, off);
}

static const struct key_type types[] = { NULL_KEYS(KEY_TYPE) KEY_TYPES_END };

static int null_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	const char *fill = uri->nkeys ? uri->keys[0].value : "yes"; /* the only key */
	struct null *n;
	uint64_t size;

	if (!keys_size(uri->path, &size))
		return keys_refuse(geom, EINVAL, "the size is \"%.140s\": it must be " A_SIZE
				   " of at least 1, as in null:1T", uri->path);
	if (strcmp(fill, "yes") != 0 && strcmp(fill, "no") != 0)
		return keys_refuse_value(geom, "", uri->keys, types);
	n = malloc(sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->size = size;
	n->writable = oflags & UMMAP_O_WRITE;
	n->fill = strcmp(fill, "yes") == 0;
	geom->size = size;
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE;
	*h = n;
	return 0;
}

static int null_close(void *h)
{
	free(h);
	return 0;
}

const struct ummap_driver ummap_driver_null = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "null",
	.keys = NULL_KEYS(KEY_NAME),
	.help = "null:SIZE?fill=yes|no  reads zeros, and discards what is written",
	.open = null_open,
	.close = null_close,
	.read = null_read,
	.write = null_write,
	.readv = null_readv,
	.writev = null_writev,
};
