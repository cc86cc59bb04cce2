/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions that are held, and reads from them: chunk by chunk, checked. */
#include "object/container.h"
#include "object/error.h"
#include "object/hdf5.h"
#include "object/id.h"
#include "object/shape.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Holding ---- */

/* Takes over the lease, which may be NULL after an error. */
static umobject_version *make_version(struct umobject_container *c, struct lease *lease,
				      const char *what)
{
	umobject_version *v = lease ? calloc(1, sizeof(*v)) : NULL;

	if (v) {
		*v = (umobject_version){ .container = c, .lease = lease };
		v->object = object_unpack(&lease->record, what);
		if (v->object)
			return v;
	} else if (lease) {
		c->b->ops->versions->release(c->b, lease);
		fail_no_memory("hold a version");
	}
	umobject_release(v);
	return NULL;
}

umobject_version *version_of_name(struct umobject_container *c, const char *name, uint64_t version)
{
	struct lease *lease = c->b->ops->names->hold(c->b, name, version);

	if (!lease && errno == ENOENT && version)
		object_fail(ENOENT, "cannot find version %" PRIu64 " of '%s' in '%s': it does not "
			    "exist or is no longer kept. Try \"umobject ls CONTAINER NAME\"",
			    version, name, c->where);
	else if (!lease && errno == ENOENT)
		object_fail(ENOENT, "cannot find the object '%s' in '%s'. Try \"umobject ls\"",
			    name, c->where);
	return make_version(c, lease, name);
}

umobject_version *version_of_id(struct umobject_container *c, const struct umobject_id *id)
{
	struct lease *lease = c->b->ops->versions->hold(c->b, id);
	char text[ID_TEXT];

	id_text(id, text);
	if (!lease && errno == ENOENT)
		object_fail(ENOENT, "cannot find version '%s' in '%s'", text, c->where);
	return make_version(c, lease, text);
}

int umobject_hold(umobject_container *c, const char *name, uint64_t version,
		  umobject_version **held)
{
	umobject_version *v = name_check(name) < 0 ? NULL : version_of_name(c, name, version);

	if (!v)
		return -1;
	if (strcmp(v->object->name, name) == 0 && (!version || v->object->version == version)) {
		*held = v;
		return 0;
	}
	umobject_release(v);
	return object_fail(EBADMSG, "cannot read '%s': its record is damaged: it belongs to "
			   "another version", name);
}

int umobject_hold_id(umobject_container *c, const struct umobject_id *id, umobject_version **held)
{
	umobject_version *v = version_of_id(c, id);
	char text[ID_TEXT];

	if (!v)
		return -1;
	if (v->object->version) {
		*held = v;
		return 0;
	}
	umobject_release(v);
	id_text(id, text);
	return object_fail(ENOENT, "cannot hold version '%s': it is not committed", text);
}

static void close_chunk(umobject_version *v, size_t slot)
{
	if (!v->chunks[slot])
		return;
	chunk_close(v->chunks[slot]);
	v->chunks[slot] = NULL;
	atomic_fetch_sub(&v->container->open_chunks, 1);
}

static void close_chunks(umobject_version *v)
{
	for (size_t slot = 0; slot < CHUNK_SLOTS; slot++)
		close_chunk(v, slot);
}

void umobject_release(umobject_version *v)
{
	int error = errno;

	if (!v)
		return;
	close_chunks(v);
	if (v->lease)
		v->container->b->ops->versions->release(v->container->b, v->lease);
	object_free(v->object);
	free(v);
	errno = error;
}

/* ---- Reading ---- */

static bool is_open(const umobject_version *v, uint64_t number)
{
	const struct chunk *c = v->chunks[number % CHUNK_SLOTS];

	return c && c->number == number;
}

/* Opens a chunk, unless it is open. Makes room for descriptors if there are too many. */
static struct chunk *open_slot(umobject_version *v, const struct source *s, uint64_t number,
			       uint64_t size)
{
	size_t slot = number % CHUNK_SLOTS;
	struct umobject_container *c = v->container;

	if (is_open(v, number))
		return v->chunks[slot];
	close_chunk(v, slot);
	if (atomic_load(&c->open_chunks) >= c->max_open_chunks)
		close_chunks(v);
	v->chunks[slot] = chunk_open(c->b, &s->id, number, size);
	if (!v->chunks[slot] && (errno == EMFILE || errno == ENFILE)) {
		close_chunks(v);
		v->chunks[slot] = chunk_open(c->b, &s->id, number, size);
	}
	if (v->chunks[slot])
		atomic_fetch_add(&c->open_chunks, 1);
	return v->chunks[slot];
}

/* Reads the common part of a chunk and the box `part` to memory that has the elements of `part`. */
static int read_chunk(umobject_version *v, uint64_t number, const struct box *part, char *to)
{
	const struct umobject_shape *shape = &v->object->shape;
	const struct source *s = object_source(v->object, number);
	struct box chunk_box = shape_chunk(shape, number), common;
	uint64_t size = box_bytes(shape, &chunk_box);
	struct chunk *c = NULL;
	struct runs r;

	if (!box_meet(shape->rank, &chunk_box, part, &common))
		return 0;
	if (s && !(c = open_slot(v, s, number, size)))
		return -1;
	runs_begin(&r, shape, &common, part, &chunk_box);
	do {
		uint64_t more = 0;

		/* The following runs of this dimension, if they are near enough to be read
		 * together. */
		if (r.rank && r.step_b[0] < CHUNK_BLOCK)
			more = min_u64((r.count[0] - r.at[0] - 1) * r.step_b[0],
				       size - r.b - r.run);
		if (!c)
			memset(to + r.a, 0, r.run);
		else if (chunk_read(c, to + r.a, r.run, r.b, more) < 0)
			return -1;
	} while (runs_next(&r));
	return 0;
}

/* Chunks that are announced to the back end while one is read. */
#define MAX_PREFETCHED_CHUNKS 8

/* Announces a chunk to the back end, if most of it will be read. */
static void prefetch_chunk(const umobject_version *v, uint64_t number, const struct box *part)
{
	const struct umobject_shape *shape = &v->object->shape;
	const struct source *s = object_source(v->object, number);
	struct box chunk_box = shape_chunk(shape, number), common;
	struct backend *b = v->container->b;
	uint64_t size = box_bytes(shape, &chunk_box);

	if (s && !is_open(v, number) && box_meet(shape->rank, &chunk_box, part, &common) &&
	    box_bytes(shape, &common) >= size / 2)
		b->ops->chunks->prefetch(b, &s->id, number, size);
}

/* Reads a box that is not empty. */
static int read_box(umobject_version *v, const struct box *part, void *data)
{
	const struct umobject_shape *shape = &v->object->shape;
	struct grid next = grid_begin(shape, part), ahead = next;
	bool more = v->container->b->ops->chunks->prefetch;
	unsigned n = 0;

	/* The first chunk is read at once: announcing it would gain nothing. */
	more = more && grid_next(&ahead);
	do {
		for (; more && n < MAX_PREFETCHED_CHUNKS; n++) {
			prefetch_chunk(v, grid_number(shape, &ahead), part);
			more = grid_next(&ahead);
		}
		n -= n > 0;
		if (read_chunk(v, grid_number(shape, &next), part, data) < 0)
			return -1;
	} while (grid_next(&next));
	return 0;
}

int umobject_read(umobject_version *v, const uint64_t *start, const uint64_t *count, void *data)
{
	const struct umobject_shape *shape = &v->object->shape;
	struct box part = { { 0 }, { 0 } };

	if (!start != !count)
		return object_fail(EINVAL, "cannot read a part of '%s': only one of start and "
				   "count is NULL. Try both or neither", v->object->name);
	memcpy(part.count, count ? count : shape->dims, shape->rank * sizeof(*count));
	if (start)
		memcpy(part.start, start, shape->rank * sizeof(*start));
	if (!box_within(shape, &part))
		return object_fail(EINVAL, "cannot read a part of '%s': it is not within the "
				   "array. start[d] + count[d] must be at most dims[d]",
				   v->object->name);
	return box_bytes(shape, &part) ? read_box(v, &part, data) : 0;
}

/*
 * Finds the largest box that begins with element `at` and whose elements follow one another: as
 * many of the last dimensions as are whole. Returns its number of elements, at most `left`.
 */
static uint64_t next_box(const struct umobject_shape *shape, uint64_t at, uint64_t left,
			 struct box *box)
{
	uint64_t inner = 1, n;
	unsigned d;

	for (d = shape->rank; d-- > 0;) {
		box->start[d] = at % shape->dims[d];
		at /= shape->dims[d];
	}
	for (d = shape->rank - 1; d > 0 && box->start[d] == 0 &&
	     inner * shape->dims[d] <= left; d--)
		inner *= shape->dims[d];
	n = min_u64(left / inner, shape->dims[d] - box->start[d]);
	for (unsigned e = 0; e < shape->rank; e++)
		box->count[e] = e < d ? 1 : e == d ? n : shape->dims[e];
	return n * inner;
}

/* Reads n whole elements from element `at` on. */
static int read_elements(umobject_version *v, char *to, uint64_t at, uint64_t n)
{
	const struct umobject_shape *shape = &v->object->shape;

	while (n) {
		struct box box = { { 0 }, { 0 } };
		uint64_t some = shape->rank ? next_box(shape, at, n, &box) : 1;

		if (read_box(v, &box, to) < 0)
			return -1;
		to += some * umobject_type_size(shape->type);
		at += some;
		n -= some;
	}
	return 0;
}

/* Reads a part of one element. */
static int read_edge(umobject_version *v, char *to, size_t size, uint64_t offset)
{
	size_t element = umobject_type_size(v->object->shape.type);
	char whole[sizeof(long double)];

	if (read_elements(v, whole, offset / element, 1) < 0)
		return -1;
	memcpy(to, whole + offset % element, size);
	return 0;
}

int umobject_read_bytes(umobject_version *v, void *data, size_t size, uint64_t offset)
{
	uint64_t bytes = shape_bytes(&v->object->shape);
	size_t element = umobject_type_size(v->object->shape.type), n;
	size_t left = offset >= bytes ? 0 : min_size(size, bytes - offset);
	char *to = data;

	memset(to + left, 0, size - left);
	if (left && offset % element) {
		n = min_size(element - offset % element, left);
		if (read_edge(v, to, n, offset) < 0)
			return -1;
		to += n;
		offset += n;
		left -= n;
	}
	n = left / element * element;
	if (n && read_elements(v, to, offset / element, n / element) < 0)
		return -1;
	return left > n ? read_edge(v, to + n, left - n, offset + n) : 0;
}

int umobject_get(umobject_container *c, const char *name, const uint64_t *start,
		 const uint64_t *count, void *data)
{
	umobject_version *v;
	int result;

	if (umobject_hold(c, name, 0, &v) < 0)
		return -1;
	result = umobject_read(v, start, count, data);
	umobject_release(v);
	return result;
}

/* ---- Properties and checks ---- */

int umobject_stat(const umobject_version *v, struct umobject_stat *stat)
{
	const struct object *o = v->object;
	struct umobject_stat s = { .struct_size = stat->struct_size, .shape = o->shape, .id = o->id,
				   .version = o->version, .created = o->created, .name = o->name,
				   .bytes = shape_bytes(&o->shape),
					.chunks = umobject_chunks(&o->shape),
				   .attributes = (unsigned)o->nattributes };

	if (stat->struct_size < sizeof(s))
		return object_fail(EINVAL, "cannot use struct_size %zu: it must be the size of "
				   "struct umobject_stat", stat->struct_size);
	for (size_t i = 0; i < o->nsources; i++)
		s.stored += o->sources[i].count;
	*stat = s;
	return 0;
}

const void *umobject_attribute(const umobject_version *v, const char *name, size_t *size)
{
	const struct attribute *a = object_attribute(v->object, name);

	if (!a)
		return NULL;
	*size = a->size;
	return a->value;
}

const char *umobject_attribute_name(const umobject_version *v, unsigned index)
{
	return index < v->object->nattributes ? v->object->attributes[index].name : NULL;
}

int version_write_view(const umobject_version *v)
{
	struct backend *b = v->container->b;
	struct bytes view;
	int result;

	if (!b->ops->views)
		return 0;
	view = view_make(v->object, b->ops->views->name_chunk, b);
	result = view.data ? b->ops->views->write(b, &v->object->id, &view) : -1;
	free(view.data);
	return result;
}

int version_check(umobject_version *v, const struct object *known,
		  void (*each)(void *arg, const char *message), void *arg)
{
	const struct umobject_shape *shape = &v->object->shape;
	struct box box = shape_chunk(shape, 0);
	char *data = malloc(box_bytes(shape, &box));
	int bad = 0;

	if (!data)
		return fail_no_memory("check a version");
	for (uint64_t number = 0; number < umobject_chunks(shape); number++) {
		const struct source *s = object_source(v->object, number);
		const struct source *same = known ? object_source(known, number) : NULL;

		if (s && same && id_same(&s->id, &same->id))
			continue;
		box = shape_chunk(shape, number);
		if (read_chunk(v, number, &box, data) == 0)
			continue;
		if (each)
			each(arg, umobject_errormsg());
		bad++;
	}
	free(data);
	return bad;
}

int umobject_check(umobject_version *v, void (*each)(void *arg, const char *sentence), void *arg)
{
	return version_check(v, NULL, each, arg);
}
