/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver s3: an object of a server with the interface of S3. */
#include "../keys.h"
#include "common/futex.h"
#include "loop.h"
#include "remote.h"
#include "s3_bucket.h"
#include "s3_changes.h"
#include "s3_sign.h"

#include <errno.h>
#include <stdlib.h>

/* A handle. */
struct handle {
	struct remote *remote;
	struct changes *changes;       /* NULL: the handle is read-only */
};

static int set_up_writing(struct handle *s, struct ummap_geom *geom)
{
	int err = changes_open(s->remote, &s->changes, geom);

	geom->caps = (geom->caps & ~UMMAP_CAP_FAULTSAFE) | UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	return err;
}

static int open_remote(const struct ummap_uri *uri, int oflags, struct remote **remote,
		       struct ummap_geom *geom)
{
	struct remote *r = remote_new();
	int err;

	if (!r)
		return -ENOMEM;
	r->may_create = (oflags & UMMAP_O_WRITE) && (oflags & UMMAP_O_CREATE);
	err = s3_set_up(r, uri, geom);
	r->sign = s3_sign;
	return remote_open(r, err, (void **)remote, geom);
}

static int s3_close(void *h)
{
	struct handle *s = h;

	if (s->changes)
		changes_close(s->changes, loop_is_foreign(s->remote));
	remote_close(s->remote);
	free(s);
	return 0;
}

static int s3_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct handle *s;
	int err;

	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot write to an object of S3 beside other "
				   "writers: each flush replaces the whole object");
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	err = open_remote(uri, oflags, &s->remote, geom);
	if (err) {
		free(s);
		return err;
	}
	if (oflags & UMMAP_O_WRITE)
		err = set_up_writing(s, geom);
	if (err)
		s3_close(s);
	else
		*h = s;
	return err;
}

static int s3_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct handle *s = h;

	return s->changes ? changes_read(s->changes, buf, len, off) :
			    remote_read(s->remote, buf, len, off);
}

static int s3_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct handle *s = h;

	if (!s->changes)
		return -EBADF;
	return loop_is_foreign(s->remote) ? -EIO : changes_write(s->changes, buf, len, off);
}

static int s3_flush(void *h, uint64_t off, uint64_t len)
{
	struct handle *s = h;

	(void)off;
	(void)len;
	if (!s->changes)
		return 0;
	return loop_is_foreign(s->remote) ? -EIO : changes_flush(s->changes);
}

/* A new version for each write in the background would cost too much. */
static int s3_push(void *h)
{
	(void)h;
	return 0;
}

static int s3_resize(void *h, uint64_t size)
{
	struct handle *s = h;

	return s->changes ? changes_resize(s->changes, size) : -EBADF;
}

static int s3_size(void *h, uint64_t *size)
{
	struct handle *s = h;

	*size = s->changes ? changes_size(s->changes) : s->remote->total;
	return 0;
}

static int s3_identity(void *h, uint64_t id[2])
{
	struct remote *remote = ((struct handle *)h)->remote;

	futex_lock(&remote->lock);
	remote_identity(remote, id);
	futex_unlock(&remote->lock);
	return 0;
}

/* Whether the request needs no bytes of the file. */
static bool is_plain(const struct handle *s, const struct ummap_io *io)
{
	return io->op == UMMAP_IO_READ &&
	       (!s->changes || changes_are_remote(s->changes, io->off, io->len));
}

static int transfer(struct handle *s, const struct ummap_io *io)
{
	return io->op == UMMAP_IO_READ ? s3_read(s, io->buf, io->len, io->off) :
					 s3_write(s, io->buf, io->len, io->off);
}

static int s3_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct handle *s = h;
	unsigned i = 0, plain = 0;

	/* Requests for the server first, so that they are in flight during the others. */
	for (; i < n && is_plain(s, io[i]); i++)
		plain++;
	if (plain)
		return remote_submit(s->remote, io, plain);
	if (loop_is_foreign(s->remote))
		return -EIO;
	while (i < n && !is_plain(s, io[i]) &&
	       remote_submit_done(s->remote, io[i], transfer(s, io[i])))
		i++;
	return (int)i;
}

static int s3_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	return remote_reap(((struct handle *)h)->remote, done, max, min);
}

static void s3_set_notice(void *h, ummap_notice *notice, void *arg)
{
	remote_set_notice(((struct handle *)h)->remote, notice, arg);
}

__attribute__((visibility("default")))
const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "s3",
	.keys = S3_KEYS(KEY_NAME),
	.help = "an object of S3: s3:BUCKET/KEY",
	.open = s3_open,
	.close = s3_close,
	.read = s3_read,
	.write = s3_write,
	.flush = s3_flush,
	.resize = s3_resize,
	.submit = s3_submit,
	.reap = s3_reap,
	.size = s3_size,
	.push = s3_push,
	.set_notice = s3_set_notice,
	.identity = s3_identity,
};
