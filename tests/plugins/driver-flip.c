/* SPDX-License-Identifier: BSD-3-Clause */
/* A filter that inverts the bits of each byte, in both directions. */
#include <ummap-driver.h>

#include <errno.h>
#include <stdlib.h>

struct flip {
	const struct ummap_driver *next;
	void *h;
};

static int flip_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct flip *f = malloc(sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	f->next = uri->next;
	err = f->next->open(uri->next_uri, oflags, &f->h, geom);
	if (err) {
		free(f);
		return err;
	}
	geom->caps &= ~UMMAP_CAP_ASYNC;
	*h = f;
	return 0;
}

static int flip_close(void *h)
{
	struct flip *f = h;
	int err = f->next->close(f->h);

	free(f);
	return err;
}

static int flip_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct flip *f = h;
	unsigned char *bytes = buf;
	int err = f->next->read(f->h, buf, len, off);

	for (size_t i = 0; !err && i < len; i++)
		bytes[i] = (unsigned char)~bytes[i];
	return err;
}

static int flip_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct flip *f = h;
	const unsigned char *bytes = buf;
	unsigned char some[1024];
	int err = 0;

	while (len > 0 && !err) {
		size_t n = len < sizeof(some) ? len : sizeof(some);

		for (size_t i = 0; i < n; i++)
			some[i] = (unsigned char)~bytes[i];
		err = f->next->write(f->h, some, n, off);
		bytes += n;
		len -= n;
		off += n;
	}
	return err;
}

static int flip_flush(void *h, uint64_t off, uint64_t len)
{
	struct flip *f = h;

	return f->next->flush ? f->next->flush(f->h, off, len) : 0;
}

const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "flip",
	.filter = 1,
	.open = flip_open,
	.close = flip_close,
	.read = flip_read,
	.write = flip_write,
	.flush = flip_flush,
};
