/* SPDX-License-Identifier: BSD-3-Clause */
/* A filter that must not run in a signal handler, because it allocates and is slow. Its table has
 * no help, which is optional. */
#include <ummap-driver.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct plain {
	const struct ummap_driver *next;
	void *h;
};

static int plain_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct plain *p = malloc(sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->next = uri->next;
	err = p->next->open(uri->next_uri, oflags, &p->h, geom);
	if (err) {
		free(p);
		return err;
	}
	geom->caps &= ~(UMMAP_CAP_FAULTSAFE | UMMAP_CAP_ASYNC);
	*h = p;
	return 0;
}

static int plain_close(void *h)
{
	struct plain *p = h;
	int err = p->next->close(p->h);

	free(p);
	return err;
}

static int plain_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct plain *p = h;
	void *copy = malloc(len);
	int err = copy ? p->next->read(p->h, copy, len, off) : -ENOMEM;

	usleep(200);
	if (!err)
		memcpy(buf, copy, len);
	free(copy);
	return err;
}

static int plain_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct plain *p = h;
	void *copy = malloc(len);
	int err = copy ? 0 : -ENOMEM;

	if (!err)
		err = p->next->write(p->h, memcpy(copy, buf, len), len, off);
	usleep(200);
	free(copy);
	return err;
}

const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "plain",
	.open = plain_open,
	.close = plain_close,
	.read = plain_read,
	.write = plain_write,
	.filter = 1,
};
