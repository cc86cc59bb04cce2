/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An object of a server. Transfers may run in a signal handler: they only fill in requests of the
 * loop and wait for them.
 */
#include "remote.h"

#include "../keys.h"
#include "common/header.h"
#include "common/minmax.h"
#include "loop.h"
#include "options.h"
#include "transfer.h"
#include "whole.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTIMAL_BYTES (1 << 20)

/* ---- Opening ---- */

/* Hands a request to the loop. */
static void send_request(struct request *r, struct remote *remote, struct ummap_io *io, void *buf,
			 size_t len, uint64_t off)
{
	r->remote = remote;
	r->io = io;
	r->buf = buf;
	r->len = len;
	r->off = off;
	r->deadline = loop_now() + (int64_t)remote->keys.timeout * 1000;
	loop_send(r);
}

static struct request *take_request(void)
{
	struct request *r;

	while (!(r = loop_take()))
		loop_await_free();
	return r;
}

/* Asks for the first byte, whose answer describes the object. */
static int ask_first_byte(struct remote *remote)
{
	struct request *r = take_request();

	send_request(r, remote, NULL, NULL, 1, 0);
	loop_wake();
	return loop_await(r);
}

static bool has_validator(const struct remote *remote)
{
	return *remote->object.etag || *remote->object.modified;
}

static int look_at_object(struct remote *remote, struct ummap_geom *geom)
{
	int err = ask_first_byte(remote);

	if (err == -ENOENT && remote->may_create)
		return 0;
	if (err == -EOPNOTSUPP && remote->keys.whole)
		return whole_download(remote, geom);
	if (err)
		return keys_refuse(geom, -err, "cannot open '%.150s': %.220s", remote->shown,
				   remote->why);
	if (remote->object.total && remote->keys.needs_validator && !has_validator(remote))
		return keys_refuse(geom, EOPNOTSUPP, "cannot open '%.200s': the server sends "
				   "neither an ETag nor Last-Modified, so a change of the object "
				   "cannot be detected. Try validator=none", remote->shown);
	return 0;
}

static void free_remote(struct remote *remote)
{
	transfer_free(remote);
	if (remote->fd >= 0)
		close(remote->fd);
	free(remote->current_url);
	options_free(remote);
	free(remote);
}

/* The identity includes the validator, because handles with one identity show the same bytes. */
void remote_identity(const struct remote *remote, uint64_t id[2])
{
	const struct validator *v = &remote->object;

	id[0] = checksum(remote->url, strlen(remote->url), 0) | 1;
	id[1] = checksum(v->etag, strlen(v->etag), v->total) ^
		checksum(v->modified, strlen(v->modified), v->total);
}

static void describe(const struct remote *remote, struct ummap_geom *geom)
{
	geom->size = remote->total;
	geom->align = 1;
	geom->optimal = OPTIMAL_BYTES;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (remote->fd < 0)
		geom->caps |= UMMAP_CAP_ASYNC | UMMAP_CAP_REMOTE;
	if (has_validator(remote) || remote->is_s3)
		remote_identity(remote, geom->id);
}

struct remote *remote_new(void)
{
	struct remote *remote = calloc(1, sizeof(*remote));

	if (remote) {
		remote->fd = -1;
		remote->version = 1;
	}
	return remote;
}

int remote_open(struct remote *remote, int err, void **h, struct ummap_geom *geom)
{
	if (!err)
		err = loop_join(remote);
	if (err) {
		free_remote(remote);
		return err;
	}
	err = look_at_object(remote, geom);
	if (err) {
		free_remote(remote);
		loop_leave();
		return err;
	}
	remote->total = remote->object.total;
	remote->version++;
	describe(remote, geom);
	*h = remote;
	return 0;
}

/* In a forked child, the memory of libcurl stays: only the parent may end its connections. */
int remote_close(void *h)
{
	struct remote *remote = h;
	bool is_foreign = loop_is_foreign(remote);

	if (is_foreign)
		remote->idle = NULL;
	else
		loop_drain(remote);
	free_remote(remote);
	if (!is_foreign)
		loop_leave();
	return 0;
}

/* ---- Transfers ---- */

/* Returns how many of the bytes are inside the object, and zeros the others. */
static size_t clip(const struct remote *remote, void *buf, size_t len, uint64_t off)
{
	uint64_t total = remote->total;
	size_t inside = off < total ? (size_t)min_u64(len, total - off) : 0;

	memset((char *)buf + inside, 0, len - inside);
	return inside;
}

int remote_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct remote *remote = h;
	struct ummap_io io = { .op = UMMAP_IO_READ };
	size_t inside;
	struct request *r;

	if (loop_is_foreign(remote))
		return -EIO;
	inside = clip(remote, buf, len, off);
	if (remote->fd >= 0)
		return whole_read(remote, buf, inside, off);
	if (inside == 0)
		return 0;
	r = take_request();
	send_request(r, remote, &io, buf, inside, off);
	loop_wake();
	return loop_await(r);
}

static void finish_request(struct request *r, struct remote *remote, struct ummap_io *io, int res)
{
	r->remote = remote;
	r->io = io;
	loop_end(r, res);
}

bool remote_submit_done(struct remote *remote, struct ummap_io *io, int res)
{
	struct request *r = loop_take();

	if (r)
		finish_request(r, remote, io, res);
	return r;
}

int remote_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct remote *remote = h;
	unsigned i;

	if (loop_is_foreign(remote))
		return -EIO;
	for (i = 0; i < n; i++) {
		struct request *r = loop_take();
		size_t inside;

		if (!r)
			break;
		inside = clip(remote, io[i]->buf, io[i]->len, io[i]->off);
		if (inside > 0) {
			send_request(r, remote, io[i], io[i]->buf, inside, io[i]->off);
			continue;
		}
		finish_request(r, remote, io[i], 0);
	}
	if (i > 0)
		loop_wake();
	return (int)i;
}

int remote_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	return (int)loop_collect(h, done, max, min);
}

void remote_set_notice(void *h, ummap_notice *notice, void *arg)
{
	notice_set(&((struct remote *)h)->notice, notice, arg);
}
