/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks as objects of RADOS. Up to MAX_FLYING bytes of writes are in flight, and sync waits for
 * them; an answered write is durable. A chunk that will be read entirely is requested before it is
 * opened.
 *
 * Lock: chunk_lock, around the lists of writes and of reads.
 */
#include "object/rados.h"

#include "common/minmax.h"
#include "common/size.h"
#include "object/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FLYING ((size_t)64 << 20)
#define MAX_AHEAD 16
#define MAX_REMOVALS 32
/* Bytes of one request. */
#define MAX_READ ((size_t)1 << 30)

static void chunk_oid(const struct umobject_id *id, uint64_t number, char oid[static OID_TEXT])
{
	char text[ID_TEXT];

	id_text(id, text);
	snprintf(oid, OID_TEXT, "chunk.%s.%" PRIu64, text, number);
}

/* ---- Writing ---- */

/* Waits for a write and removes it from the list. Keeps a failed write in the other list. */
static void finish_flight(struct cluster *c, struct flight **at)
{
	struct flight *f = *at;

	*at = f->next;
	if (c->last_flight == &f->next)
		c->last_flight = at;
	c->flying -= f->bytes;
	f->error = rados_finish(f->done);
	if (f->error) {
		f->next = c->failed;
		c->failed = f;
	} else {
		free(f);
	}
}

static int begin_flight(struct cluster *c, struct flight *f, const struct iovec *iov, int n)
{
	rados_write_op_t op = rados_create_write_op();
	char oid[OID_TEXT];

	/* An older chunk may have been longer. */
	rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	rados_write_op_truncate(op, 0);
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len)
			rados_write_op_write(op, iov[i].iov_base, iov[i].iov_len, f->bytes);
		f->bytes += iov[i].iov_len;
	}
	chunk_oid(&f->id, f->number, oid);
	return rados_begin(c, op, oid, &f->done);
}

static int refuse_write(const struct cluster *c, int error, uint64_t number)
{
	if (error == -EFBIG || error == -EMSGSIZE)
		return object_fail(EFBIG, "cannot write chunk %" PRIu64 ": it has more bytes than "
				   "one object of the cluster may have. Try smaller chunks",
				   number);
	return rados_check(c, error, "cannot write chunk %" PRIu64, number);
}

static int write_chunk(struct backend *b, const struct umobject_id *id, uint64_t number,
		       const struct iovec *iov, int n)
{
	struct cluster *c = of(b);
	struct flight *f = calloc(1, sizeof(*f));
	int result;

	if (!f)
		return fail_no_memory("write a chunk");
	f->id = *id;
	f->number = number;
	pthread_mutex_lock(&c->chunk_lock);
	while (c->flying > MAX_FLYING)
		finish_flight(c, &c->flights);
	result = begin_flight(c, f, iov, n);
	if (result == 0) {
		c->flying += f->bytes;
		*c->last_flight = f;
		c->last_flight = &f->next;
	}
	pthread_mutex_unlock(&c->chunk_lock);
	if (result == 0)
		return 0;
	free(f);
	return refuse_write(c, result, number);
}

static int sync_chunks(struct backend *b, const struct umobject_id *id)
{
	struct cluster *c = of(b);
	struct flight **at, *f;
	uint64_t number = 0;
	int error = 0;

	pthread_mutex_lock(&c->chunk_lock);
	for (at = &c->flights; *at;) {
		if (id_same(&(*at)->id, id))
			finish_flight(c, at);
		else
			at = &(*at)->next;
	}
	for (at = &c->failed; (f = *at);) {
		if (!id_same(&f->id, id)) {
			at = &f->next;
			continue;
		}
		error = f->error;
		number = f->number;
		*at = f->next;
		free(f);
	}
	pthread_mutex_unlock(&c->chunk_lock);
	return error ? refuse_write(c, error, number) : 0;
}

/* ---- Reading ---- */

struct stored_object {
	struct stored s;
	const struct cluster *c;
	uint64_t number;
	char oid[OID_TEXT];
	struct ahead *ahead;        /* read of the whole chunk; NULL: none */
};

static void free_ahead(struct ahead *a)
{
	if (a->done)
		rados_finish(a->done);
	free(a->bytes);
	free(a);
}

/* Waits for the read of the whole chunk. If it has failed, the chunk is read in parts. */
static void finish_ahead(struct stored_object *o)
{
	struct ahead *a = o->ahead;
	int result;

	if (!a || !a->done)
		return;
	rados_aio_wait_for_complete(a->done);
	result = rados_aio_get_return_value(a->done);
	if (result < 0) {
		o->ahead = NULL;
		free_ahead(a);
		return;
	}
	a->size = (size_t)result;
	rados_aio_release(a->done);
	a->done = NULL;
}

/* Returns the number of bytes that were read, or a negative errno value. */
static int read_part(struct stored_object *o, void *to, size_t size, uint64_t at)
{
	finish_ahead(o);
	if (o->ahead && at + size <= o->ahead->size) {
		memcpy(to, o->ahead->bytes + at, size);
		return (int)size;
	}
	return rados_read(o->c->io, o->oid, to, size, at);
}

static int stored_read(struct stored *s, void *to, size_t size, uint64_t at)
{
	struct stored_object *o = (struct stored_object *)s;

	while (size) {
		int n = read_part(o, to, min_size(size, MAX_READ), at);

		if (n == -ENOENT)
			return object_fail(ENODATA, "chunk %" PRIu64 " is missing: there is no "
					   "'%s' in 'rados:%s'", o->number, o->oid, o->c->name);
		if (n < 0)
			return rados_check(o->c, n, "cannot read '%s'", o->oid);
		if (n == 0)
			return object_fail(EBADMSG, "chunk %" PRIu64 " is damaged: '%s' is too "
					   "short", o->number, o->oid);
		to = (char *)to + n;
		at += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

static void stored_close(struct stored *s)
{
	struct stored_object *o = (struct stored_object *)s;

	if (o->ahead)
		free_ahead(o->ahead);
	free(o);
}

static const struct stored_ops stored_ops = { stored_read, stored_close };

static struct ahead **find_ahead(struct cluster *c, const char *oid)
{
	struct ahead **at;

	for (at = &c->ahead; *at && strcmp((*at)->oid, oid) != 0; at = &(*at)->next)
		;
	return at;
}

static struct ahead *remove_ahead(struct cluster *c, struct ahead **at)
{
	struct ahead *a = *at;

	if (a) {
		*at = a->next;
		c->nahead--;
	}
	return a;
}

static struct stored *open_chunk(struct backend *b, const struct umobject_id *id, uint64_t number)
{
	struct stored_object *o = calloc(1, sizeof(*o));
	struct cluster *c = of(b);

	if (!o) {
		fail_no_memory("open a chunk");
		return NULL;
	}
	o->s.ops = &stored_ops;
	o->c = c;
	o->number = number;
	chunk_oid(id, number, o->oid);
	pthread_mutex_lock(&c->chunk_lock);
	o->ahead = remove_ahead(c, find_ahead(c, o->oid));
	pthread_mutex_unlock(&c->chunk_lock);
	return &o->s;
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

static void prefetch_chunk(struct backend *b, const struct umobject_id *id, uint64_t number,
			   uint64_t bytes)
{
	struct cluster *c = of(b);
	struct ahead *a, *old = NULL, **at;
	char oid[OID_TEXT];

	/* Room for the header. */
	bytes += bytes / 1024 + 65536;
	if (bytes > MAX_FLYING / MAX_AHEAD * 2)
		return;
	chunk_oid(id, number, oid);
	pthread_mutex_lock(&c->chunk_lock);
	if (!*find_ahead(c, oid) && (a = begin_ahead(c, oid, (size_t)bytes))) {
		a->next = c->ahead;
		c->ahead = a;
		/* Drop the oldest read that no chunk_open has taken. */
		if (++c->nahead > MAX_AHEAD) {
			for (at = &c->ahead; (*at)->next; at = &(*at)->next)
				;
			old = remove_ahead(c, at);
		}
	}
	pthread_mutex_unlock(&c->chunk_lock);
	if (old)
		free_ahead(old);
}

static int chunk_exists(struct backend *b, const struct umobject_id *id, uint64_t number,
			bool *exists)
{
	char oid[OID_TEXT];

	chunk_oid(id, number, oid);
	return rados_find(of(b), oid, exists);
}

void end_chunks(struct cluster *c)
{
	struct flight *f;

	while (c->flights)
		finish_flight(c, &c->flights);
	while ((f = c->failed)) {
		c->failed = f->next;
		free(f);
	}
	while (c->ahead)
		free_ahead(remove_ahead(c, &c->ahead));
}

/* ---- Removing ---- */

struct removal {
	rados_completion_t stat, done;
	uint64_t size;
	time_t changed;
};

/* Concurrent removals. */
struct removals {
	const struct cluster *c;
	struct removal list[MAX_REMOVALS];
	size_t n;
	uint64_t chunks, bytes;     /* number of removed chunks, and their bytes */
	int error;                  /* negative errno value of a removal that failed */
};

static void finish_removals(struct removals *r)
{
	for (size_t i = 0; i < r->n; i++) {
		struct removal *item = &r->list[i];
		bool exists = item->stat && rados_finish(item->stat) == 0;
		int result = item->done ? rados_finish(item->done) : -ENOMEM;

		if (result == 0) {
			r->chunks++;
			r->bytes += exists ? item->size : 0;
		} else if (result != -ENOENT) {
			r->error = result;
		}
	}
	r->n = 0;
}

static void begin_removal(struct removals *r, const char *oid, bool count)
{
	struct removal *item = &r->list[r->n++];
	rados_write_op_t op = rados_create_write_op();

	*item = (struct removal){ 0 };
	if (count && rados_aio_create_completion2(NULL, NULL, &item->stat) == 0 &&
	    rados_aio_stat(r->c->io, oid, item->stat, &item->size, &item->changed) < 0) {
		rados_aio_release(item->stat);
		item->stat = NULL;
	}
	rados_write_op_remove(op);
	rados_begin(r->c, op, oid, &item->done);
	if (r->n == MAX_REMOVALS)
		finish_removals(r);
}

static int remove_chunks(struct backend *b, const struct umobject_id *id, uint64_t first,
			 uint64_t count)
{
	struct removals r = { .c = of(b) };
	char oid[OID_TEXT];

	for (uint64_t number = first; number < first + count; number++) {
		chunk_oid(id, number, oid);
		begin_removal(&r, oid, false);
	}
	finish_removals(&r);
	return rados_check(r.c, r.error, "cannot remove chunks");
}

static bool parse_chunk(const char *oid, struct umobject_id *id, uint64_t *number)
{
	const char *rest = strncmp(oid, "chunk.", 6) == 0 ? id_parse(oid + 6, id) : NULL;

	return rest && *rest == '.' && size_parse_count(rest + 1, number) == 0;
}

static int sweep_chunks(struct backend *b, garbage_fn *garbage, void *arg,
			struct umobject_garbage *removed)
{
	struct removals r = { .c = of(b) };
	rados_list_ctx_t list;
	const char *oid;
	int result = rados_nobjects_list_open(r.c->io, &list);

	if (result < 0)
		return rados_check(r.c, result, "cannot list the chunks");
	while ((result = rados_nobjects_list_next(list, &oid, NULL, NULL)) == 0) {
		struct umobject_id id;
		uint64_t number;

		if (parse_chunk(oid, &id, &number) && garbage(arg, &id, number))
			begin_removal(&r, oid, true);
	}
	rados_nobjects_list_close(list);
	finish_removals(&r);
	removed->chunks += r.chunks;
	removed->bytes += r.bytes;
	return rados_check(r.c, result == -ENOENT ? r.error : result, "cannot remove garbage");
}

const struct chunk_ops rados_chunks = {
	.write = write_chunk,
	.sync = sync_chunks,
	.open = open_chunk,
	.exists = chunk_exists,
	.remove = remove_chunks,
	.prefetch = prefetch_chunk,
	.sweep = sweep_chunks,
};
