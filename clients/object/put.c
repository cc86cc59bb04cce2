/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * New versions. A put holds its version from the beginning on, so nobody collects what it has put. What it has put is known to
 * it alone until it commits: then all of it is durable first, and the name refers to it last.
 */
#include "object/container.h"
#include "object/error.h"
#include "object/gc.h"
#include "object/hdf5.h"
#include "object/id.h"
#include "object/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct umobject_put {
	struct umobject_container *container;
	struct lease *lease, *base;   /* base: of the version from which this one is made */
	struct object *object;
	struct object *mine;          /* its sources: chunks that this process has put */
	struct chunk_writer writer;
};

const struct umobject_id *put_id(const umobject_put *p)
{
	return &p->object->id;
}

static bool same_source(const struct source *a, const struct source *b)
{
	return a && b ? id_same(&a->id, &b->id) : !a && !b;
}

bool put_has_chunk_of(const umobject_put *p, const umobject_version *version, uint64_t number)
{
	return !object_source(p->mine, number) && same_source(object_source(p->object, number), object_source(version->object, number));
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put_free(struct umobject_put *p)
{
	struct backend *b = p->container->b;

	if (p->lease)
		b->ops->release(b, p->lease);
	if (p->base)
		b->ops->release(b, p->base);
	chunk_writer_free(&p->writer);
	object_free(p->object);
	object_free(p->mine);
	free(p);
}

/* Without sources and attributes. */
static struct object *blank_object(const char *name, const struct umobject_shape *shape)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o || !(o->name = strdup(name))) {
		object_fail(ENOMEM, "cannot begin a put: no memory");
		free(o);
		return NULL;
	}
	o->shape = *shape;
	o->created = now();
	return o;
}

/* Takes over the object. */
static int start(struct umobject_container *c, struct object *o, umobject_put **put, struct umobject_id *id)
{
	struct umobject_put *p = calloc(1, sizeof(*p));
	void *bytes = NULL;
	size_t size;
	int result = -1;

	if (!p) {
		object_free(o);
		return object_fail(ENOMEM, "cannot begin a put: no memory");
	}
	p->container = c;
	p->object = o;
	p->mine = blank_object(o->name, &o->shape);
	if (p->mine && id_make(&o->id) == 0)
		bytes = object_pack(o, &size);
	if (bytes)
		result = c->b->ops->version_new(c->b, &o->id, o->name, bytes, size, &p->lease);
	free(bytes);
	if (result < 0) {
		put_free(p);
		return -1;
	}
	if (id)
		*id = o->id;
	*put = p;
	return 0;
}

static int check_writable(const struct umobject_container *c)
{
	return c->read_only ? object_fail(EROFS, "cannot put an object: the container was opened "
					  "with UMOBJECT_READ_ONLY") : 0;
}

int umobject_begin(umobject_container *c, const char *name, const struct umobject_shape *given, umobject_put **put,
		   struct umobject_id *id)
{
	struct umobject_shape shape;
	struct object *o;

	if (name_check(name) < 0 || shape_complete(given, &shape) < 0 || check_writable(c) < 0)
		return -1;
	o = blank_object(name, &shape);
	return o ? start(c, o, put, id) : -1;
}

/* Each process that puts holds it: who began the put may have ended before another one commits. */
static int hold_base(struct umobject_put *p)
{
	struct backend *b = p->container->b;
	void *bytes;
	size_t size;

	if (!p->object->has_base)
		return 0;
	if (b->ops->version_hold(b, &p->object->base, &p->base, &bytes, &size) < 0) {
		p->base = NULL;
		return -1;
	}
	free(bytes);
	return 0;
}

int umobject_begin_from(umobject_version *old, umobject_put **put, struct umobject_id *id)
{
	struct umobject_container *c = old->container;
	struct object *o;

	if (check_writable(c) < 0 || !(o = object_copy(old->object)))
		return -1;
	o->version = 0;
	o->created = now();
	o->base = old->object->id;
	o->has_base = true;
	if (start(c, o, put, id) < 0)
		return -1;
	if (hold_base(*put) < 0) {
		umobject_abandon(*put);
		return -1;
	}
	return 0;
}

int umobject_join(umobject_container *c, const struct umobject_id *id, umobject_put **put)
{
	struct umobject_put *p = calloc(1, sizeof(*p));
	void *bytes;
	size_t size;

	if (!p)
		return object_fail(ENOMEM, "cannot begin a put: no memory");
	p->container = c;
	if (check_writable(c) < 0 || c->b->ops->version_hold(c->b, id, &p->lease, &bytes, &size) < 0) {
		free(p);
		return -1;
	}
	p->object = object_unpack(bytes, size, "the version that is being put");
	free(bytes);
	p->mine = p->object ? blank_object(p->object->name, &p->object->shape) : NULL;
	if (p->mine && p->object->version) {
		object_fail(ENOENT, "cannot join the put of '%s': it was committed as version %llu",
			    p->object->name, (unsigned long long)p->object->version);
		object_free(p->mine);
		p->mine = NULL;
	}
	if (!p->mine || hold_base(p) < 0) {
		put_free(p);
		return -1;
	}
	*put = p;
	return 0;
}

int umobject_put_chunk(umobject_put *p, uint64_t number, const void *data)
{
	struct backend *b = p->container->b;
	struct iovec iov[3];

	if (number >= umobject_chunks(&p->object->shape))
		return object_fail(EINVAL, "cannot put chunk %llu of '%s': the object has only "
				   "chunks 0 to %llu", (unsigned long long)number, p->object->name,
				   (unsigned long long)umobject_chunks(&p->object->shape) - 1);
	if (chunk_prepare(&p->writer, &p->object->shape, &p->object->id, number, data, iov) < 0 ||
	    b->ops->chunk_write(b, &p->object->id, number, iov, 3) < 0)
		return -1;
	return object_add_source(p->mine, &p->object->id, number);
}

void umobject_put_shape(const umobject_put *p, struct umobject_shape *shape)
{
	*shape = p->object->shape;
}

int umobject_put_sync(umobject_put *p)
{
	struct backend *b = p->container->b;

	return b->ops->chunk_sync(b, &p->object->id);
}

int umobject_put_attribute(umobject_put *p, const char *name, const void *value, size_t size)
{
	if (!name || !*name || strlen(name) > 255 || size > 60000)
		return object_fail(EINVAL, "cannot store the attribute '%.40s' of %zu bytes: its "
				   "name must have 1 to 255 bytes, and its value at most 60,000",
				   name ? name : "", size);
	return object_set_attribute(p->object, name, value, size);
}

/* ---- Committing ---- */

/* Chunks that others have put are known by being there. Those of the version from which this one is made count unless there is a new one. */
static int find_sources(struct umobject_put *p, bool sparse)
{
	uint64_t chunks = umobject_chunks(&p->object->shape), number;
	struct backend *b = p->container->b;

	for (number = 0; number < chunks; number++) {
		bool there = object_source(p->mine, number) != NULL;

		if (!there && b->ops->chunk_there(b, &p->object->id, number, &there) < 0)
			return -1;
		if (there && object_add_source(p->object, &p->object->id, number) < 0)
			return -1;
		if (!there && !sparse && !p->base && !object_source(p->object, number))
			return object_fail(ENODATA, "cannot commit '%s': chunk %llu is missing. "
					   "Try to put it, or UMOBJECT_SPARSE", p->object->name,
					   (unsigned long long)number);
	}
	return 0;
}

static int make_view(const struct umobject_put *p)
{
	struct backend *b = p->container->b;
	size_t size;
	void *bytes;
	int result;

	if (!b->ops->view_write)
		return 0;
	bytes = view_make(p->object, b->ops->view_file, b, &size);
	result = bytes ? b->ops->view_write(b, &p->object->id, bytes, size) : -1;
	free(bytes);
	return result;
}

static bool refers(const struct object *o, const struct umobject_id *id)
{
	size_t i;

	for (i = 0; i < o->nsources; i++)
		if (id_same(&o->sources[i].id, id))
			return true;
	return false;
}

/* Whether one of the versions that are kept refers to the one that is no longer. */
static bool still_needed(struct umobject_container *c, const struct object *old, const struct object *newest)
{
	uint64_t version = newest->version;
	bool needed = refers(newest, &old->id);

	while (!needed && --version > old->version) {
		struct lease *lease;
		struct object *o = container_look(c, newest->name, version, &lease);

		/* One that cannot be read now may be read later. */
		if (!o) {
			needed = errno != ENOENT;
			continue;
		}
		needed = refers(o, &old->id);
		object_free(o);
		c->b->ops->release(c->b, lease);
	}
	return needed;
}

/* Nobody has to wait for the garbage collector where a version is only replaced. Others refer only to versions that are older than they
 * are, and whoever makes one from this one holds it. */
static void remove_old(struct umobject_container *c, const struct object *old, const struct object *newest)
{
	struct source *own = calloc(old->nsources + 1, sizeof(*own));
	size_t i, n = 0;

	for (i = 0; own && i < old->nsources; i++)
		if (id_same(&old->sources[i].id, &old->id))
			own[n++] = old->sources[i];
	if (own && !still_needed(c, old, newest))
		gc_version(c->b, &old->id, own, n);
	free(own);
}

/* Under the name's lock, if there is one. */
static int publish_once(struct umobject_put *p)
{
	struct umobject_container *c = p->container;
	struct object *o = p->object, *old;
	struct lease *lease;
	void *bytes;
	size_t size;
	int result;

	old = container_look(c, o->name, 0, &lease);
	o->version = old ? old->version + 1 : 1;
	if (!old && errno != ENOENT)
		return -1;
	if (old)
		c->b->ops->release(c->b, lease);
	object_free(old);
	o->has_base = false;
	old = o->version > c->keep ? container_look(c, o->name, o->version - c->keep, &lease) : NULL;
	bytes = object_pack(o, &size);
	result = bytes ? c->b->ops->publish(c->b, p->lease, o->name, o->version, c->keep, bytes, size) : -1;
	free(bytes);
	if (old) {
		c->b->ops->release(c->b, lease);
		if (result == 0)
			remove_old(c, old, o);
		object_free(old);
	}
	return result;
}

static int publish(struct umobject_put *p)
{
	struct backend *b = p->container->b;
	const char *name = p->object->name;
	void *lock = NULL;
	int result, error;

	if (b->ops->name_lock && b->ops->name_lock(b, name, &lock) < 0)
		return -1;
	/* Each time somebody else has made a version, so this ends. */
	do
		result = publish_once(p);
	while (result < 0 && errno == EAGAIN && !b->ops->name_lock);
	error = errno;
	if (b->ops->name_unlock)
		b->ops->name_unlock(b, lock);
	errno = error;
	return result;
}

/* Others who commit the name wait for what is flushed with the version; for little they wait less than for a flush of its own. */
static bool is_little(const struct umobject_put *p)
{
	const struct object *mine = p->mine;

	return mine->nsources <= 1 && (!mine->nsources || mine->sources->count == 1) && shape_bytes(&mine->shape) <= 65536;
}

static int commit(umobject_put *p, unsigned flags)
{
	if (flags & ~UMOBJECT_SPARSE)
		object_fail(EINVAL, "cannot use the flags %#x: the only flag is UMOBJECT_SPARSE",
			    flags);
	else if (find_sources(p, flags & UMOBJECT_SPARSE) == 0 && make_view(p) == 0 && (is_little(p) || umobject_put_sync(p) == 0) &&
		 publish(p) == 0)
		return 0;
	umobject_abandon(p);
	return -1;
}

int umobject_commit(umobject_put *p, unsigned flags, uint64_t *version)
{
	if (commit(p, flags) < 0)
		return -1;
	if (version)
		*version = p->object->version;
	put_free(p);
	return 0;
}

int umobject_commit_hold(umobject_put *p, unsigned flags, umobject_version **held)
{
	struct umobject_version *v = calloc(1, sizeof(*v));

	if (!v) {
		umobject_abandon(p);
		return object_fail(ENOMEM, "cannot commit the put: no memory");
	}
	if (commit(p, flags) < 0) {
		free(v);
		return -1;
	}
	*v = (struct umobject_version){ .container = p->container, .lease = p->lease, .object = p->object };
	p->lease = NULL;
	p->object = NULL;
	put_free(p);
	*held = v;
	return 0;
}

int umobject_put_end(umobject_put *p)
{
	int result = umobject_put_sync(p), error = errno;

	put_free(p);
	errno = error;
	return result;
}

void umobject_abandon(umobject_put *p)
{
	struct umobject_container *c = p->container;
	struct umobject_id id = p->object->id;
	struct source *own = NULL;
	struct failure why;
	size_t n = 0;

	/* Why it is abandoned is what counts: what fails here, the collector finds. */
	failure_keep(&why);
	if (p->mine) {
		own = p->mine->sources;
		n = p->mine->nsources;
		p->mine->sources = NULL;
		p->mine->nsources = 0;
	}
	c->b->ops->chunk_sync(c->b, &id);
	put_free(p);
	gc_version(c->b, &id, own, n);
	free(own);
	failure_restore(&why);
}

static int put_all(umobject_put *p, const void *data)
{
	struct umobject_shape *shape = &p->object->shape;
	uint64_t chunks = umobject_chunks(shape), number;
	size_t size = umobject_type_size(shape->type);
	struct box whole = { { 0 }, { 0 } }, box;
	char *copy = NULL;
	int result = 0;

	memcpy(whole.count, shape->dims, sizeof(whole.count));
	for (number = 0; number < chunks && result == 0; number++) {
		uint64_t bytes = umobject_chunk(shape, number, box.start, box.count) * size;
		struct runs r;

		runs_begin(&r, shape, &box, &whole, &box);
		if (r.run == bytes) {
			result = umobject_put_chunk(p, number, (const char *)data + r.a);
			continue;
		}
		/* The first chunk is the largest. */
		if (!copy && !(copy = malloc(bytes)))
			result = object_fail(ENOMEM, "cannot put chunk %llu: no memory for %llu "
					"bytes", (unsigned long long)number,
					(unsigned long long)bytes);
		if (copy) {
			do
				memcpy(copy + r.b, (const char *)data + r.a, r.run);
			while (runs_next(&r));
			result = umobject_put_chunk(p, number, copy);
		}
	}
	free(copy);
	return result;
}

int umobject_put_array(umobject_container *c, const char *name, const struct umobject_shape *shape, const void *data)
{
	umobject_put *p;

	if (umobject_begin(c, name, shape, &p, NULL) < 0)
		return -1;
	if (put_all(p, data) == 0)
		return umobject_commit(p, 0, NULL);
	umobject_abandon(p);
	return -1;
}
