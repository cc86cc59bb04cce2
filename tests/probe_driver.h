/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver for the tests of filters, which keeps its data in memory and counts its calls. */
#ifndef TESTS_PROBE_DRIVER_H
#define TESTS_PROBE_DRIVER_H

#include "ummap-driver.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#define SIZE 256

static struct {
	char data[2 * SIZE];
	atomic_int reads, writes, vectors, flushes, closes;
	int open_result, close_result, fd;
	uint64_t size;
} probe;

static int probe_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			 struct ummap_geom *geom)
{
	cr_assert_str_eq(uri->path, "/there");
	cr_assert_eq(oflags, UMMAP_O_WRITE);
	if (probe.open_result) {
		strcpy(geom->why, "probe will not open");
		return probe.open_result;
	}
	probe.fd = fd;
	probe.size = SIZE;
	*h = &probe;
	geom->size = SIZE;
	geom->align = 512;
	geom->optimal = 8192;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_GROW | UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE |
		     UMMAP_CAP_ASYNC | UMMAP_CAP_DIRECT;
	return 0;
}

static int probe_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return probe_open_fd(uri, -1, oflags, h, geom);
}

static int probe_close(void *h)
{
	cr_assert_eq(h, &probe);
	probe.closes++;
	return probe.close_result;
}

static int probe_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h;
	probe.reads++;
	memcpy(buf, probe.data + off, len);
	return 0;
}

static int probe_write(void *h, const void *buf, size_t len, uint64_t off)
{
	(void)h;
	probe.writes++;
	memcpy(probe.data + off, buf, len);
	return 0;
}

static int probe_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	(void)h;
	probe.vectors++;
	for (int i = 0; i < n; off += iov[i++].iov_len)
		memcpy(iov[i].iov_base, probe.data + off, iov[i].iov_len);
	return 0;
}

static int probe_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	(void)h;
	probe.vectors++;
	for (int i = 0; i < n; off += iov[i++].iov_len)
		memcpy(probe.data + off, iov[i].iov_base, iov[i].iov_len);
	return 0;
}

static int probe_flush(void *h, uint64_t off, uint64_t len)
{
	(void)h;
	cr_expect(off == 3 && len == 4);
	probe.flushes++;
	return 0;
}

static int probe_resize(void *h, uint64_t size)
{
	(void)h;
	probe.size = size;
	return 0;
}

static int probe_size(void *h, uint64_t *size)
{
	(void)h;
	*size = probe.size;
	return 0;
}

static const struct ummap_driver full = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "probe",
	.open = probe_open,
	.open_fd = probe_open_fd,
	.close = probe_close,
	.read = probe_read,
	.write = probe_write,
	.flush = probe_flush,
	.resize = probe_resize,
	.readv = probe_readv,
	.writev = probe_writev,
	.size = probe_size,
};

/* A driver with the functions that each driver must have, and write. */
static const struct ummap_driver bare = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "bare",
	.open = probe_open,
	.close = probe_close,
	.read = probe_read,
	.write = probe_write,
};

#endif
