/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks as objects of RADOS. Writes are on their way together, as many bytes as FLYING, and sync waits for them; an object that has been
 * answered for is durable. What will be read whole is on its way before it is asked for.
 *
 * Lock: `turn`, around the lists of both.
 */
#include "object/rados.h"

#include "object/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLYING ((size_t)64 << 20)
#define AHEAD 16
#define TOGETHER 32

static void chunk_oid(const struct umobject_id *id, uint64_t number, char oid[static OID_TEXT])
{
	char text[37];

	rados_id(id, text);
	snprintf(oid, OID_TEXT, "chunk.%s.%llu", text, (unsigned long long)number);
}

static bool same(const struct umobject_id *a, const struct umobject_id *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- Writing ---- */

/* Waits for one, and keeps it among those that have failed if it has. */
static void land(struct cluster *c, struct flight **at)
{
	struct flight *f = *at, *before;
	int result = rados_finish(f->done);

	*at = f->next;
	if (c->last == f) {
		for (before = c->first; before && before->next; before = before->next)
			;
		c->last = before;
	}
	c->flying -= f->bytes;
	if (result == 0) {
		free(f);
		return;
	}
	f->bytes = (size_t)-result;
	f->next = c->failed;
	c->failed = f;
}

static int begin_write(struct cluster *c, struct flight *f, const struct iovec *iov, int n)
{
	rados_write_op_t op = rados_create_write_op();
	char oid[OID_TEXT];
	uint64_t at = 0;
	int i;

	/* What an older, longer one had behind its end goes. */
	rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	rados_write_op_truncate(op, 0);
	for (i = 0; i < n; i++) {
		if (iov[i].iov_len)
			rados_write_op_write(op, iov[i].iov_base, iov[i].iov_len, at);
		at += iov[i].iov_len;
	}
	f->bytes = (size_t)at;
	chunk_oid(&f->id, f->number, oid);
	return rados_begin(c, op, oid, &f->done);
}

static int refuse_write(const struct cluster *c, int error, uint64_t number)
{
	if (error == -EFBIG || error == -EMSGSIZE)
		return object_fail(EFBIG, "cannot write chunk %llu: it has more bytes than one "
				   "object of the cluster may have. Try smaller chunks",
				   (unsigned long long)number);
	return rados_refuse(c, error, "cannot write chunk %llu to 'rados:%s'",
			    (unsigned long long)number, c->name);
}

int rados_chunk_write(struct backend *b, const struct umobject_id *id, uint64_t number, const struct iovec *iov, int n)
{
	struct cluster *c = of(b);
	struct flight *f = calloc(1, sizeof(*f));
	int result;

	if (!f)
		return object_fail(ENOMEM, "cannot write chunk %llu: no memory",
				   (unsigned long long)number);
	f->id = *id;
	f->number = number;
	pthread_mutex_lock(&c->turn);
	while (c->flying > FLYING)
		land(c, &c->first);
	result = begin_write(c, f, iov, n);
	if (result == 0) {
		c->flying += f->bytes;
		if (c->last)
			c->last->next = f;
		else
			c->first = f;
		c->last = f;
	}
	pthread_mutex_unlock(&c->turn);
	if (result == 0)
		return 0;
	free(f);
	return refuse_write(c, result, number);
}

int rados_chunk_sync(struct backend *b, const struct umobject_id *id)
{
	struct cluster *c = of(b);
	struct flight **at;
	int error = 0;
	uint64_t number = 0;

	pthread_mutex_lock(&c->turn);
	for (at = &c->first; *at;) {
		if (same(&(*at)->id, id))
			land(c, at);
		else
			at = &(*at)->next;
	}
	for (at = &c->failed; *at;) {
		struct flight *f = *at;

		if (!same(&f->id, id)) {
			at = &f->next;
			continue;
		}
		error = -(int)f->bytes;
		number = f->number;
		*at = f->next;
		free(f);
	}
	pthread_mutex_unlock(&c->turn);
	return error ? refuse_write(c, error, number) : 0;
}

/* ---- Reading ---- */

struct stored_object {
	struct stored s;
	const struct cluster *c;
	uint64_t number;
	char oid[OID_TEXT];
	struct ahead *all;          /* NULL: it is read part by part */
};

static void ahead_free(struct ahead *a)
{
	if (a->done)
		rados_finish(a->done);
	free(a->bytes);
	free(a);
}

/* Bytes that are there, or an error. */
static int read_part(struct stored_object *o, void *to, size_t size, uint64_t at)
{
	struct ahead *a = o->all;

	if (a && a->done) {
		rados_aio_wait_for_complete(a->done);
		if (rados_aio_get_return_value(a->done) < 0) {
			o->all = NULL;
			ahead_free(a);
			a = NULL;
		} else {
			a->size = (size_t)rados_aio_get_return_value(a->done);
			rados_aio_release(a->done);
			a->done = NULL;
		}
	}
	if (a && at + size <= a->size) {
		memcpy(to, a->bytes + at, size);
		return (int)size;
	}
	return rados_read(o->c->io, o->oid, to, size, at);
}

static int stored_read(struct stored *s, void *to, size_t size, uint64_t at)
{
	struct stored_object *o = (struct stored_object *)s;

	while (size) {
		size_t some = size < ((size_t)1 << 30) ? size : (size_t)1 << 30;
		int n = read_part(o, to, some, at);

		if (n == -ENOENT)
			return object_fail(ENODATA, "chunk %llu is missing: there is no '%s' in "
					   "'rados:%s'", (unsigned long long)o->number, o->oid,
					   o->c->name);
		if (n < 0)
			return rados_refuse(o->c, n, "cannot read '%s' from 'rados:%s'", o->oid,
					    o->c->name);
		if (n == 0)
			return object_fail(EBADMSG, "chunk %llu is damaged: '%s' is too short",
					   (unsigned long long)o->number, o->oid);
		to = (char *)to + n;
		at += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

static void stored_close(struct stored *s)
{
	struct stored_object *o = (struct stored_object *)s;

	if (o->all)
		ahead_free(o->all);
	free(o);
}

static const struct stored_ops stored_ops = { stored_read, stored_close };

/* What is on its way already, taken out of the list; NULL: nothing. */
static struct ahead *take_ahead(struct cluster *c, const char *oid)
{
	struct ahead **at, *a;

	pthread_mutex_lock(&c->turn);
	for (at = &c->ahead; *at && strcmp((*at)->oid, oid) != 0; at = &(*at)->next)
		;
	a = *at;
	if (a) {
		*at = a->next;
		c->nahead--;
	}
	pthread_mutex_unlock(&c->turn);
	return a;
}

int rados_chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number, struct stored **stored)
{
	struct stored_object *o = calloc(1, sizeof(*o));

	if (!o)
		return object_fail(ENOMEM, "cannot open chunk %llu: no memory",
				   (unsigned long long)number);
	o->s.ops = &stored_ops;
	o->c = of(b);
	o->number = number;
	chunk_oid(id, number, o->oid);
	o->all = take_ahead(of(b), o->oid);
	*stored = &o->s;
	return 0;
}

static struct ahead *begin_ahead(const struct cluster *c, const char *oid, size_t size)
{
	struct ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	strcpy(a->oid, oid);
	a->bytes = malloc(size);
	if (a->bytes && rados_aio_create_completion2(NULL, NULL, &a->done) == 0) {
		if (rados_aio_read(c->io, oid, a->done, a->bytes, size, 0) == 0)
			return a;
		rados_aio_release(a->done);
	}
	free(a->bytes);
	free(a);
	return NULL;
}

/* The oldest one goes that nobody has come for. */
static struct ahead *too_many(struct cluster *c)
{
	struct ahead **at = &c->ahead, *a;

	if (c->nahead <= AHEAD)
		return NULL;
	while ((*at)->next)
		at = &(*at)->next;
	a = *at;
	*at = NULL;
	c->nahead--;
	return a;
}

void rados_chunk_ahead(struct backend *b, const struct umobject_id *id, uint64_t number, uint64_t bytes)
{
	struct cluster *c = of(b);
	struct ahead *a, *old = NULL;
	char oid[OID_TEXT];

	/* With its head, which is little. */
	bytes += bytes / 1024 + 65536;
	if (bytes > FLYING / AHEAD * 2)
		return;
	chunk_oid(id, number, oid);
	pthread_mutex_lock(&c->turn);
	for (a = c->ahead; a && strcmp(a->oid, oid) != 0; a = a->next)
		;
	if (!a && (a = begin_ahead(c, oid, (size_t)bytes))) {
		a->next = c->ahead;
		c->ahead = a;
		c->nahead++;
		old = too_many(c);
	}
	pthread_mutex_unlock(&c->turn);
	if (old)
		ahead_free(old);
}

int rados_chunk_there(struct backend *b, const struct umobject_id *id, uint64_t number, bool *there)
{
	const struct cluster *c = of(b);
	char oid[OID_TEXT];
	uint64_t size;
	time_t changed;
	int result;

	chunk_oid(id, number, oid);
	result = rados_stat(c->io, oid, &size, &changed);
	*there = result == 0;
	return result == 0 || result == -ENOENT ? 0 : rados_refuse(c, result, "cannot look for "
			"'%s' in 'rados:%s'", oid, c->name);
}

void rados_end_chunks(struct cluster *c)
{
	while (c->first)
		land(c, &c->first);
	while (c->failed) {
		struct flight *f = c->failed;

		c->failed = f->next;
		free(f);
	}
	while (c->ahead) {
		struct ahead *a = c->ahead;

		c->ahead = a->next;
		ahead_free(a);
	}
}

/* ---- Removing ---- */

struct removal {
	rados_completion_t stat, done;
	uint64_t size;
	time_t changed;
};

/* Many at a time. */
struct removals {
	const struct cluster *c;
	struct removal list[TOGETHER];
	size_t n;
	uint64_t chunks, bytes;     /* that are gone */
	int error;                  /* negative, of one that could not be removed */
};

static void finish_removals(struct removals *r)
{
	size_t i;

	for (i = 0; i < r->n; i++) {
		struct removal *one = &r->list[i];
		bool there = one->stat && rados_finish(one->stat) == 0;
		int result = one->done ? rados_finish(one->done) : -ENOMEM;

		if (result == 0) {
			r->chunks++;
			r->bytes += there ? one->size : 0;
		} else if (result != -ENOENT) {
			r->error = result;
		}
	}
	r->n = 0;
}

static void remove_one(struct removals *r, const char *oid, bool count)
{
	struct removal *one = &r->list[r->n++];
	rados_write_op_t op = rados_create_write_op();

	*one = (struct removal){ 0 };
	if (count && rados_aio_create_completion2(NULL, NULL, &one->stat) == 0 &&
	    rados_aio_stat(r->c->io, oid, one->stat, &one->size, &one->changed) < 0) {
		rados_aio_release(one->stat);
		one->stat = NULL;
	}
	rados_write_op_remove(op);
	rados_begin(r->c, op, oid, &one->done);
	if (r->n == TOGETHER)
		finish_removals(r);
}

int rados_chunks_remove(struct backend *b, const struct umobject_id *id, uint64_t first, uint64_t count)
{
	struct removals r = { .c = of(b) };
	char oid[OID_TEXT];
	uint64_t number;

	for (number = first; number < first + count; number++) {
		chunk_oid(id, number, oid);
		remove_one(&r, oid, false);
	}
	finish_removals(&r);
	return r.error ? rados_refuse(r.c, r.error, "cannot remove chunks from 'rados:%s'",
				      r.c->name) : 0;
}

static bool parse_chunk(const char *oid, struct umobject_id *id, uint64_t *number)
{
	const char *rest = strncmp(oid, "chunk.", 6) == 0 ? rados_parse_id(oid + 6, id) : NULL;
	char *end;

	if (!rest || *rest != '.' || rest[1] < '0' || rest[1] > '9')
		return false;
	*number = strtoull(rest + 1, &end, 10);
	return !*end;
}

int rados_sweep(struct backend *b, bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg,
		struct umobject_garbage *removed)
{
	struct removals r = { .c = of(b) };
	rados_list_ctx_t list;
	const char *oid;
	int result = rados_nobjects_list_open(r.c->io, &list);

	if (result < 0)
		return rados_refuse(r.c, result, "cannot list the chunks of 'rados:%s'", r.c->name);
	while ((result = rados_nobjects_list_next(list, &oid, NULL, NULL)) == 0) {
		struct umobject_id id;
		uint64_t number;

		if (parse_chunk(oid, &id, &number) && garbage(arg, &id, number))
			remove_one(&r, oid, true);
	}
	rados_nobjects_list_close(list);
	finish_removals(&r);
	removed->chunks += r.chunks;
	removed->bytes += r.bytes;
	result = result == -ENOENT ? r.error : result;
	return result ? rados_refuse(r.c, result, "cannot remove garbage from 'rados:%s'",
				     r.c->name) : 0;
}
