/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * New versions. A put holds its version from the beginning, so the collector keeps the chunks that
 * it has put. Only the put knows its version until the commit, which first makes everything durable
 * and then lets the name refer to the version.
 */
#include "object/container.h"
#include "object/error.h"
#include "object/id.h"
#include "object/shape.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ATTRIBUTE_NAME_MAX 255
#define ATTRIBUTE_MAX 60000

struct umobject_put {
	struct umobject_container *container;
	umobject_version *made; /* version in progress */
	umobject_version *base; /* version that it is made from; NULL: none */
	struct object *own;     /* its sources are the chunks that this process has put */
	struct chunk_writer writer;
};

const struct umobject_id *put_id(const umobject_put *p)
{
	return &p->made->object->id;
}

bool put_has_chunk_of(const umobject_put *p, const umobject_version *version, uint64_t number)
{
	const struct source *mine = object_source(p->made->object, number);
	const struct source *theirs = object_source(version->object, number);

	return !object_source(p->own, number) &&
		(mine && theirs ? id_same(&mine->id, &theirs->id) : !mine && !theirs);
}

static void free_put(umobject_put *p)
{
	umobject_release(p->made);
	umobject_release(p->base);
	chunk_writer_free(&p->writer);
	object_free(p->own);
	free(p);
}

static uint64_t read_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Makes an object without chunks and attributes. */
static struct object *make_object(const char *name, const struct umobject_shape *shape)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o || !(o->name = strdup(name))) {
		fail_no_memory("begin a put");
		free(o);
		return NULL;
	}
	o->shape = *shape;
	o->created = read_clock();
	return o;
}

/* Makes the version of a put in the back end. */
static int begin_version(umobject_version *v)
{
	struct backend *b = v->container->b;
	struct bytes record;

	if (id_make(&v->object->id) < 0 || !(record = object_pack(v->object)).data)
		return -1;
	v->lease = b->ops->versions->create(b, &v->object->id, v->object->name, &record);
	free(record.data);
	return v->lease ? 0 : -1;
}

/* Completes a put whose `made` has an object. Each process of a put holds the base, because the
 * process that began the put may end before another one commits. */
static int complete_put(umobject_put *p)
{
	const struct object *o = p->made->object;

	p->own = make_object(o->name, &o->shape);
	if (!p->own || (!p->made->lease && begin_version(p->made) < 0))
		return -1;
	return o->has_base ? umobject_hold_id(p->container, &o->base, &p->base) : 0;
}

/* Begins a put with an object, which it takes over. */
static int begin_put(struct umobject_container *c, struct object *o, umobject_put **put,
		     struct umobject_id *id)
{
	umobject_put *p = calloc(1, sizeof(*p));

	if (p) {
		p->container = c;
		p->made = calloc(1, sizeof(*p->made));
	}
	if (!p || !p->made) {
		free(p);
		object_free(o);
		return fail_no_memory("begin a put");
	}
	p->made->container = c;
	p->made->object = o;
	if (complete_put(p) < 0) {
		umobject_abandon(p);
		return -1;
	}
	if (id)
		*id = o->id;
	*put = p;
	return 0;
}

int umobject_begin(umobject_container *c, const char *name, const struct umobject_shape *given,
		   umobject_put **put, struct umobject_id *id)
{
	struct umobject_shape shape;
	struct object *o;

	if (name_check(name) < 0 || shape_complete(given, &shape) < 0 ||
	    container_check_writable(c) < 0)
		return -1;
	o = make_object(name, &shape);
	return o ? begin_put(c, o, put, id) : -1;
}

int umobject_begin_from(umobject_version *old, umobject_put **put, struct umobject_id *id)
{
	struct umobject_container *c = old->container;
	struct object *o = container_check_writable(c) < 0 ? NULL : object_copy(old->object);

	if (!o)
		return -1;
	o->version = 0;
	o->created = read_clock();
	o->base = old->object->id;
	o->has_base = true;
	return begin_put(c, o, put, id);
}

int umobject_join(umobject_container *c, const struct umobject_id *id, umobject_put **put)
{
	umobject_version *v = container_check_writable(c) < 0 ? NULL : version_of_id(c, id);
	umobject_put *p;

	if (!v)
		return -1;
	if (v->object->version) {
		object_fail(ENOENT, "cannot join the put of '%s': it was committed as version %"
			    PRIu64, v->object->name, v->object->version);
	} else if (!(p = calloc(1, sizeof(*p)))) {
		fail_no_memory("join a put");
	} else {
		p->container = c;
		p->made = v;
		if (complete_put(p) == 0) {
			*put = p;
			return 0;
		}
		free_put(p);
		return -1;
	}
	umobject_release(v);
	return -1;
}

int umobject_put_chunk(umobject_put *p, uint64_t number, const void *data)
{
	const struct object *o = p->made->object;
	uint64_t chunks = umobject_chunks(&o->shape);
	struct backend *b = p->container->b;
	struct iovec iov[CHUNK_PIECES];

	if (number >= chunks)
		return object_fail(EINVAL, "cannot put chunk %" PRIu64 " of '%s': the object has "
				   "only chunks 0 to %" PRIu64, number, o->name, chunks - 1);
	if (chunk_prepare(&p->writer, &o->shape, &o->id, number, data, iov) < 0 ||
	    b->ops->chunks->write(b, &o->id, number, iov, CHUNK_PIECES) < 0)
		return -1;
	return object_add_source(p->own, &o->id, number);
}

void umobject_put_shape(const umobject_put *p, struct umobject_shape *shape)
{
	*shape = p->own->shape;
}

int umobject_put_sync(umobject_put *p)
{
	return p->container->b->ops->chunks->sync(p->container->b, put_id(p));
}

int umobject_put_attribute(umobject_put *p, const char *name, const void *value, size_t size)
{
	if (!name || !*name || strlen(name) > ATTRIBUTE_NAME_MAX || size > ATTRIBUTE_MAX)
		return object_fail(EINVAL, "cannot store the attribute '%.40s' of %zu bytes: its "
				   "name must have 1 to %d bytes, and its value at most %d",
				   name ? name : "", size, ATTRIBUTE_NAME_MAX, ATTRIBUTE_MAX);
	return object_set_attribute(p->made->object, name, value, size);
}

/* ---- Committing ---- */

/* Adds the chunks of all processes to the object. A chunk that another process has put exists. For
 * other chunks, the version from which the put began counts. */
static int find_sources(umobject_put *p, bool sparse)
{
	struct object *o = p->made->object;
	struct backend *b = p->container->b;
	uint64_t chunks = umobject_chunks(&o->shape);

	for (uint64_t number = 0; number < chunks; number++) {
		bool exists = object_source(p->own, number);

		if (!exists && b->ops->chunks->exists(b, &o->id, number, &exists) < 0)
			return -1;
		if (exists && object_add_source(o, &o->id, number) < 0)
			return -1;
		if (!exists && !sparse && !p->base && !object_source(o, number))
			return object_fail(ENODATA, "cannot commit '%s': chunk %" PRIu64 " is "
					   "missing. Try to put it, or UMOBJECT_SPARSE", o->name,
					   number);
	}
	return 0;
}

static bool refers_to(const struct object *o, const struct umobject_id *id)
{
	for (size_t i = 0; i < o->nsources; i++)
		if (id_same(&o->sources[i].id, id))
			return true;
	return false;
}

/* Whether a kept version refers to chunks of a version that is no longer kept. */
static bool is_still_needed(struct umobject_container *c, const struct object *old,
			    const struct object *newest)
{
	bool needed = refers_to(newest, &old->id);

	for (uint64_t version = newest->version - 1; !needed && version > old->version; version--) {
		umobject_version *v = version_of_name(c, newest->name, version);

		/* A version that cannot be read now may be readable later. */
		needed = v ? refers_to(v->object, &old->id) : errno != ENOENT;
		umobject_release(v);
	}
	return needed;
}

/* Releases a replaced version, and removes it without the collector if it is not needed. Versions
 * refer only to chunks of older versions, and a put that is made from a version holds it. */
static void remove_replaced(umobject_version *v, const struct object *newest)
{
	struct umobject_container *c = v->container;
	const struct object *old = v->object;
	struct umobject_id id = old->id;
	struct source *own = calloc(old->nsources + 1, sizeof(*own));
	bool is_garbage = own && !is_still_needed(c, old, newest);
	size_t n = 0;

	for (size_t i = 0; own && i < old->nsources; i++)
		if (id_same(&old->sources[i].id, &id))
			own[n++] = old->sources[i];
	umobject_release(v);
	if (is_garbage)
		gc_version(c->b, &id, own, n);
	free(own);
}

/* The caller holds the name's lock, if the back end has locks. */
static int publish_put_locked(umobject_put *p)
{
	struct umobject_container *c = p->container;
	struct object *o = p->made->object;
	umobject_version *old = version_of_name(c, o->name, 0);
	struct bytes record;
	int result = -1;

	if (!old && errno != ENOENT)
		return -1;
	o->version = old ? old->object->version + 1 : 1;
	o->has_base = false;
	umobject_release(old);
	old = o->version > c->keep ? version_of_name(c, o->name, o->version - c->keep) : NULL;
	record = object_pack(o);
	if (record.data)
		result = c->b->ops->names->publish(c->b, p->made->lease, o->name, o->version,
						   c->keep, &record);
	free(record.data);
	if (old && result == 0)
		remove_replaced(old, o);
	else
		umobject_release(old);
	return result;
}

static int publish_put(umobject_put *p)
{
	bool has_locks = p->container->b->ops->names->lock;
	void *lock;
	int result;

	if (container_lock(p->container, p->own->name, &lock) < 0)
		return -1;
	/* Each EAGAIN means that another put has committed, so the loop ends. */
	do
		result = publish_put_locked(p);
	while (result < 0 && errno == EAGAIN && !has_locks);
	container_unlock(p->container, lock);
	return result;
}

/* Chunks of at most so many bytes are made durable with the version, while the name is locked. This
 * takes less time than a flush of their own. */
#define MAX_BYTES_WITH_VERSION 65536

static bool is_small(const struct object *own)
{
	return (!own->nsources || (own->nsources == 1 && own->sources->count == 1)) &&
		shape_bytes(&own->shape) <= MAX_BYTES_WITH_VERSION;
}

static int commit_put(umobject_put *p, unsigned flags)
{
	if (flags & ~UMOBJECT_SPARSE)
		object_fail(EINVAL, "cannot use the flags %#x: the only flag is UMOBJECT_SPARSE",
			    flags);
	else if (find_sources(p, flags & UMOBJECT_SPARSE) == 0 &&
		 version_write_view(p->made) == 0 &&
		 (is_small(p->own) || umobject_put_sync(p) == 0) && publish_put(p) == 0)
		return 0;
	umobject_abandon(p);
	return -1;
}

int umobject_commit(umobject_put *p, unsigned flags, uint64_t *version)
{
	if (commit_put(p, flags) < 0)
		return -1;
	if (version)
		*version = p->made->object->version;
	free_put(p);
	return 0;
}

int umobject_commit_hold(umobject_put *p, unsigned flags, umobject_version **held)
{
	if (commit_put(p, flags) < 0)
		return -1;
	*held = p->made;
	p->made = NULL;
	free_put(p);
	return 0;
}

int umobject_put_end(umobject_put *p)
{
	int result = umobject_put_sync(p);

	free_put(p);
	return result;
}

void umobject_abandon(umobject_put *p)
{
	struct backend *b = p->container->b;
	struct object *own = p->own;
	struct umobject_id id = *put_id(p);
	bool exists = p->made->lease;
	struct failure why;

	/* The caller reports why the put is abandoned. The collector repeats what fails here. */
	failure_keep(&why);
	p->own = NULL;
	if (exists)
		b->ops->chunks->sync(b, &id);
	free_put(p);
	if (exists && own)
		gc_version(b, &id, own->sources, own->nsources);
	object_free(own);
	failure_restore(&why);
}

static int put_chunks(umobject_put *p, const char *data)
{
	const struct umobject_shape *shape = &p->own->shape;
	struct box whole = { { 0 }, { 0 } }, box;
	uint64_t chunks = umobject_chunks(shape);
	char *copy = NULL;
	int result = 0;

	memcpy(whole.count, shape->dims, sizeof(whole.count));
	for (uint64_t number = 0; number < chunks && result == 0; number++) {
		struct runs r;

		box = shape_chunk(shape, number);
		runs_begin(&r, shape, &box, &whole, &box);
		if (r.run == box_bytes(shape, &box)) {
			result = umobject_put_chunk(p, number, data + r.a);
			continue;
		}
		/* The first chunk is the largest. */
		if (!copy && !(copy = malloc(box_bytes(shape, &box))))
			return fail_no_memory("put a chunk");
		box_copy(shape, &box, data, &whole, copy, &box);
		result = umobject_put_chunk(p, number, copy);
	}
	free(copy);
	return result;
}

int umobject_put_array(umobject_container *c, const char *name, const struct umobject_shape *shape,
		       const void *data)
{
	umobject_put *p;

	if (umobject_begin(c, name, shape, &p, NULL) < 0)
		return -1;
	if (put_chunks(p, data) == 0)
		return umobject_commit(p, 0, NULL);
	umobject_abandon(p);
	return -1;
}
