/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks as objects of S3. Chunks to write are collected and sent several at a time; sync sends the
 * rest. A short chunk is read by one request, and a long one as far as it is needed.
 *
 * Lock: chunk_lock, around the lists of chunks to write.
 */
#include "object/s3.h"

#include "common/minmax.h"
#include "common/size.h"
#include "object/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PENDING 16
#define MAX_PENDING_BYTES ((size_t)64 << 20)
#define WHOLE_BYTES ((size_t)16 << 20) /* chunks up to this length are read by one request */
#define MAX_REMOVALS 64

static void chunk_key(const struct umobject_id *id, uint64_t number, char key[static KEY_BYTES])
{
	char text[ID_TEXT];

	id_text(id, text);
	snprintf(key, KEY_BYTES, "c/%s.%" PRIu64, text, number);
}

/* ---- Writing ---- */

static void free_pending(struct pending *p)
{
	free(p->body.iov_base);
	free(p);
}

/* Sends all chunks. Keeps those that have failed. */
static void send_pending_locked(struct bucket *c)
{
	struct s3_call calls[MAX_PENDING] = { { .method = NULL } };
	unsigned n = 0;

	for (struct pending *p = c->pending; p; p = p->next)
		calls[n++] = (struct s3_call){ .method = "PUT", .key = p->key, .body = &p->body,
					       .nbody = 1 };
	if (n)
		s3_run(c->calls, calls, n, MAX_PENDING, NULL, NULL, NULL);
	for (unsigned i = 0; i < n; i++) {
		struct pending *p = c->pending;

		c->pending = p->next;
		p->error = calls[i].res;
		snprintf(p->why, sizeof(p->why), "%s", calls[i].why);
		s3_call_free(&calls[i]);
		if (!p->error) {
			free_pending(p);
			continue;
		}
		free(p->body.iov_base);
		p->body.iov_base = NULL;
		p->next = c->failed;
		c->failed = p;
	}
	c->npending = 0;
	c->bytes_pending = 0;
}

static struct pending *copy_chunk(const struct umobject_id *id, uint64_t number,
				  const struct iovec *iov, int n)
{
	struct pending *p = calloc(1, sizeof(*p));
	size_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	if (!p || !(p->body.iov_base = malloc(bytes + 1))) {
		free(p);
		return NULL;
	}
	p->id = *id;
	p->number = number;
	chunk_key(id, number, p->key);
	for (int i = 0; i < n; i++) {
		memcpy((char *)p->body.iov_base + p->body.iov_len, iov[i].iov_base, iov[i].iov_len);
		p->body.iov_len += iov[i].iov_len;
	}
	return p;
}

/* Two writes of one chunk must not be on their way at the same time. */
static bool is_pending(const struct bucket *c, const char *key)
{
	const struct pending *p = c->pending;

	while (p && strcmp(p->key, key) != 0)
		p = p->next;
	return p;
}

static int write_chunk(struct backend *b, const struct umobject_id *id, uint64_t number,
		       const struct iovec *iov, int n)
{
	struct bucket *c = bucket_of(b);
	struct pending *p = copy_chunk(id, number, iov, n);

	if (!p)
		return fail_no_memory("write a chunk");
	pthread_mutex_lock(&c->chunk_lock);
	if (is_pending(c, p->key))
		send_pending_locked(c);
	p->next = c->pending;
	c->pending = p;
	c->bytes_pending += p->body.iov_len;
	if (++c->npending == MAX_PENDING || c->bytes_pending > MAX_PENDING_BYTES)
		send_pending_locked(c);
	pthread_mutex_unlock(&c->chunk_lock);
	return 0;
}

static int sync_chunks(struct backend *b, const struct umobject_id *id)
{
	struct bucket *c = bucket_of(b);
	struct pending *p, *last = NULL;

	pthread_mutex_lock(&c->chunk_lock);
	send_pending_locked(c);
	for (struct pending **at = &c->failed; (p = *at);) {
		if (!id_same(&p->id, id)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		/* A chunk that was not sent after the failure of another one has no reason. */
		if (last && p->error == -ECANCELED) {
			free_pending(p);
			continue;
		}
		if (last)
			free_pending(last);
		last = p;
	}
	pthread_mutex_unlock(&c->chunk_lock);
	if (!last)
		return 0;
	object_fail(last->error == -ECANCELED ? EIO : -last->error, "cannot write chunk %" PRIu64
		    " (s3:%s): %s", last->number, c->name, last->why);
	free_pending(last);
	return -1;
}

void end_s3_chunks(struct bucket *c)
{
	struct pending *p;

	send_pending_locked(c);
	while ((p = c->failed)) {
		c->failed = p->next;
		free_pending(p);
	}
}

/* ---- Reading ---- */

struct stored_object {
	struct stored s;
	struct bucket *c;
	uint64_t number;
	char key[KEY_BYTES];
	char *begin;                   /* first bytes of the chunk; NULL: not read yet */
	size_t size;                   /* their number */
};

/* Reads bytes [at, at + size), or as many as there are. */
static int read_range(struct stored_object *o, char *to, size_t size, uint64_t at, size_t *got)
{
	char range[64];
	struct s3_call call = { .method = "GET", .key = o->key, .range = range, .to = to,
				.room = size };
	struct reply reply = { .now = 0 };
	int err;

	snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, at, at + size - 1);
	err = s3_call(o->c->calls, &call);
	snprintf(reply.why, sizeof(reply.why), "%s", call.why);
	*got = call.got;
	/* A server may ignore the range. */
	if (!err && call.head.status == 206 && (!call.head.has_range || call.head.first != at))
		err = -EIO;
	if (!err && call.head.status != 206 && at > 0)
		err = -EIO;
	s3_call_free(&call);
	if (err == -ENOENT)
		return object_fail(ENODATA, "chunk %" PRIu64 " is missing: there is no '%s' in "
				   "'s3:%s'", o->number, o->key, o->c->name);
	if (err == -ERANGE) {
		*got = 0;
		return 0;
	}
	return store_check(o->c, err, &reply, "cannot read '%s'", o->key);
}

static int read_begin(struct stored_object *o)
{
	char *shorter;

	o->begin = malloc(WHOLE_BYTES);
	if (!o->begin)
		return fail_no_memory("read a chunk");
	if (read_range(o, o->begin, WHOLE_BYTES, 0, &o->size) < 0) {
		free(o->begin);
		o->begin = NULL;
		return -1;
	}
	shorter = realloc(o->begin, o->size + 1);
	o->begin = shorter ? shorter : o->begin;
	return 0;
}

static int stored_read(struct stored *s, void *to, size_t size, uint64_t at)
{
	struct stored_object *o = (struct stored_object *)s;
	size_t inside, got = 0;

	if (!o->begin && read_begin(o) < 0)
		return -1;
	inside = at < o->size ? min_size(size, o->size - at) : 0;
	memcpy(to, o->begin + (inside ? at : 0), inside);
	if (inside == size)
		return 0;
	if (o->size == WHOLE_BYTES &&
	    read_range(o, (char *)to + inside, size - inside, at + inside, &got) < 0)
		return -1;
	return inside + got == size ? 0 :
		object_fail(EBADMSG, "chunk %" PRIu64 " is damaged: '%s' is too short", o->number,
			    o->key);
}

static void stored_close(struct stored *s)
{
	free(((struct stored_object *)s)->begin);
	free(s);
}

static const struct stored_ops stored_ops = { stored_read, stored_close };

/* A chunk of this process must be on the server before it is read. */
static void send_chunk(struct bucket *c, const char *key)
{
	pthread_mutex_lock(&c->chunk_lock);
	if (is_pending(c, key))
		send_pending_locked(c);
	pthread_mutex_unlock(&c->chunk_lock);
}

static struct stored *open_chunk(struct backend *b, const struct umobject_id *id, uint64_t number)
{
	struct stored_object *o = calloc(1, sizeof(*o));

	if (!o) {
		fail_no_memory("open a chunk");
		return NULL;
	}
	o->s.ops = &stored_ops;
	o->c = bucket_of(b);
	o->number = number;
	chunk_key(id, number, o->key);
	send_chunk(o->c, o->key);
	return &o->s;
}

static int chunk_exists(struct backend *b, const struct umobject_id *id, uint64_t number,
			bool *exists)
{
	struct bucket *c = bucket_of(b);
	char key[KEY_BYTES];
	struct s3_call call = { .method = "HEAD", .key = key };
	struct reply reply = { .now = 0 };
	int err;

	chunk_key(id, number, key);
	send_chunk(c, key);
	err = s3_call(c->calls, &call);
	snprintf(reply.why, sizeof(reply.why), "%s", call.why);
	s3_call_free(&call);
	*exists = !err;
	return store_check(c, err == -ENOENT ? 0 : err, &reply, "cannot look for '%s'", key);
}

/* ---- Removing ---- */

/* Removals that are made together. */
struct removals {
	struct bucket *c;
	struct s3_call calls[MAX_REMOVALS];
	char keys[MAX_REMOVALS][KEY_BYTES];
	unsigned n;
	int err;
	struct reply reply;            /* reason of the error */
	garbage_fn *garbage;
	void *arg;
	uint64_t chunks, bytes, pending_bytes;
};

static void make_removals(struct removals *r)
{
	int err = r->n ? s3_run(r->c->calls, r->calls, r->n, MAX_PENDING, NULL, NULL, NULL) : 0;

	for (unsigned i = 0; i < r->n; i++) {
		if (err && r->calls[i].res == err)
			snprintf(r->reply.why, sizeof(r->reply.why), "%s", r->calls[i].why);
		r->chunks += r->calls[i].res == 0;
		s3_call_free(&r->calls[i]);
	}
	r->bytes += err ? 0 : r->pending_bytes;
	r->err = r->err ? r->err : err;
	r->pending_bytes = 0;
	r->n = 0;
}

static void add_removal(struct removals *r, const char *key, uint64_t bytes)
{
	snprintf(r->keys[r->n], KEY_BYTES, "%s", key);
	r->calls[r->n] = (struct s3_call){ .method = "DELETE", .key = r->keys[r->n] };
	r->pending_bytes += bytes;
	if (++r->n == MAX_REMOVALS)
		make_removals(r);
}

static int remove_chunks(struct backend *b, const struct umobject_id *id, uint64_t first,
			 uint64_t count)
{
	struct removals *r = calloc(1, sizeof(*r));
	char key[KEY_BYTES];
	int result;

	if (!r)
		return fail_no_memory("remove chunks");
	r->c = bucket_of(b);
	for (uint64_t number = first; number < first + count; number++) {
		chunk_key(id, number, key);
		send_chunk(r->c, key);
		add_removal(r, key, 0);
	}
	make_removals(r);
	result = store_check(r->c, r->err, &r->reply, "cannot remove chunks");
	free(r);
	return result;
}

static int visit_chunk(void *arg, const char *key, uint64_t size, time_t modified)
{
	struct removals *r = arg;
	struct umobject_id id;
	const char *rest = strncmp(key, "c/", 2) == 0 ? id_parse(key + 2, &id) : NULL;
	uint64_t number;

	(void)modified;
	if (rest && *rest == '.' && size_parse_count(rest + 1, &number) == 0 &&
	    r->garbage(r->arg, &id, number))
		add_removal(r, key, size);
	return 0;
}

static int sweep_chunks(struct backend *b, garbage_fn *garbage, void *arg,
			struct umobject_garbage *removed)
{
	struct removals *r = calloc(1, sizeof(*r));
	struct reply reply;
	int result;

	if (!r)
		return fail_no_memory("remove garbage");
	r->c = bucket_of(b);
	r->garbage = garbage;
	r->arg = arg;
	result = store_list(r->c, "c/", visit_chunk, r, &reply);
	make_removals(r);
	removed->chunks += r->chunks;
	removed->bytes += r->bytes;
	result = result ? store_check(r->c, result, &reply, "cannot list the chunks") :
			  store_check(r->c, r->err, &r->reply, "cannot remove garbage");
	free(r);
	return result;
}

const struct chunk_ops s3_chunks = {
	.write = write_chunk,
	.sync = sync_chunks,
	.open = open_chunk,
	.exists = chunk_exists,
	.remove = remove_chunks,
	.sweep = sweep_chunks,
};
