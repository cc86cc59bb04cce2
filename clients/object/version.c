/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions that are held, and what is read from them: chunk by chunk, checked. */
#include "object/container.h"
#include "object/error.h"
#include "object/id.h"
#include "object/shape.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int version_make(struct umobject_container *c, struct lease *lease, void *bytes, size_t size, const char *what,
		 struct umobject_version **held)
{
	struct umobject_version *v = calloc(1, sizeof(*v));
	int error;

	if (v)
		*v = (struct umobject_version){ .container = c, .lease = lease, .object = object_unpack(bytes, size, what) };
	else
		object_fail(ENOMEM, "cannot hold a version: no memory");
	free(bytes);
	if (v && v->object) {
		*held = v;
		return 0;
	}
	error = errno;
	c->b->ops->release(c->b, lease);
	free(v);
	errno = error;
	return -1;
}

int umobject_hold(umobject_container *c, const char *name, uint64_t version, umobject_version **held)
{
	struct lease *lease;
	void *bytes;
	size_t size;

	if (name_check(name) < 0 || c->b->ops->name_hold(c->b, name, version, &lease, &bytes, &size) < 0)
		return -1;
	if (version_make(c, lease, bytes, size, name, held) < 0)
		return -1;
	if (strcmp((*held)->object->name, name) == 0 && (!version || (*held)->object->version == version))
		return 0;
	umobject_release(*held);
	return object_fail(EBADMSG, "cannot read '%s': its record is damaged: it belongs to another "
			   "version", name);
}

int umobject_hold_id(umobject_container *c, const struct umobject_id *id, umobject_version **held)
{
	struct lease *lease;
	char text[ID_TEXT];
	void *bytes;
	size_t size;

	id_text(id, text);
	if (c->b->ops->version_hold(c->b, id, &lease, &bytes, &size) < 0 || version_make(c, lease, bytes, size, text, held) < 0)
		return -1;
	if ((*held)->object->version)
		return 0;
	umobject_release(*held);
	return object_fail(ENOENT, "cannot hold version '%s': it is not committed", text);
}

static void close_chunk(umobject_version *v, size_t at)
{
	if (!v->chunks[at])
		return;
	chunk_close(v->chunks[at]);
	v->chunks[at] = NULL;
	atomic_fetch_sub(&v->container->open_chunks, 1);
}

static void close_chunks(umobject_version *v)
{
	for (size_t i = 0; i < OPEN_CHUNKS; i++)
		close_chunk(v, i);
}

void umobject_release(umobject_version *v)
{
	if (!v)
		return;
	close_chunks(v);
	v->container->b->ops->release(v->container->b, v->lease);
	object_free(v->object);
	free(v);
}

/* ---- Reading ---- */

/* A chunk, open: those with the same remainder share a place. NULL with a sentence. */
static struct chunk *chunk_of(umobject_version *v, const struct source *s, uint64_t number, uint64_t size)
{
	unsigned at = (unsigned)(number % OPEN_CHUNKS);
	int err;

	if (v->chunks[at] && v->numbers[at] == number)
		return v->chunks[at];
	close_chunk(v, at);
	if (atomic_load(&v->container->open_chunks) >= v->container->most_chunks)
		close_chunks(v);
	err = chunk_open(v->container->b, &s->id, number, size, &v->chunks[at]);
	if (err < 0 && (errno == EMFILE || errno == ENFILE)) {
		close_chunks(v);
		err = chunk_open(v->container->b, &s->id, number, size, &v->chunks[at]);
	}
	if (err < 0)
		return NULL;
	atomic_fetch_add(&v->container->open_chunks, 1);
	v->numbers[at] = number;
	return v->chunks[at];
}

/* What of a chunk is in the box `part`, into memory that has the box `part`. */
static int read_chunk(umobject_version *v, uint64_t number, const struct box *chunk_box, const struct box *part, char *to)
{
	const struct umobject_shape *shape = &v->object->shape;
	const struct source *s = object_source(v->object, number);
	struct chunk *c = NULL;
	struct box common;
	uint64_t end;
	struct runs r;

	if (!box_meet(shape->rank, chunk_box, part, &common))
		return 0;
	if (s && !(c = chunk_of(v, s, number, box_bytes(shape, chunk_box))))
		return -1;
	runs_begin(&r, shape, &common, part, chunk_box);
	/* So far runs follow one another that are near enough to be read together. */
	end = r.b + r.run;
	do {
		uint64_t more = 0;

		if (r.rank && r.step_b[0] < CHUNK_BLOCK)
			more = (r.count[0] - r.at[0] - 1) * r.step_b[0];
		end = r.b + r.run;
		if (end + more > box_bytes(shape, chunk_box))
			more = box_bytes(shape, chunk_box) - end;
		if (!c)
			memset(to + r.a, 0, r.run);
		else if (chunk_read(c, to + r.a, r.run, r.b, more) < 0)
			return -1;
	} while (runs_next(&r));
	return 0;
}

/* The next chunk of those that the box touches, in the order of their numbers; false: there is none. */
static bool next_place(unsigned rank, const struct box *grid, uint64_t *place)
{
	unsigned d;

	for (d = rank; d-- > 0;) {
		if (++place[d] < grid->start[d] + grid->count[d])
			return true;
		place[d] = grid->start[d];
	}
	return false;
}

/* So many chunks are on their way while one is read. */
#define AHEAD 8

/* Tells the back end of a chunk of which most will be read. */
static void go_ahead(const umobject_version *v, const uint64_t *place, const struct box *part)
{
	const struct umobject_shape *shape = &v->object->shape;
	struct backend *b = v->container->b;
	uint64_t number = shape_number(shape, place);
	const struct source *s = object_source(v->object, number);
	unsigned at = (unsigned)(number % OPEN_CHUNKS);
	struct box chunk_box, common;

	if (!s || (v->chunks[at] && v->numbers[at] == number))
		return;
	umobject_chunk(shape, number, chunk_box.start, chunk_box.count);
	if (box_meet(shape->rank, &chunk_box, part, &common) && box_bytes(shape, &common) >= box_bytes(shape, &chunk_box) / 2)
		b->ops->chunk_ahead(b, &s->id, number, box_bytes(shape, &chunk_box));
}

/* All chunks that the box touches. */
static int read_box(umobject_version *v, const struct box *part, void *data)
{
	const struct umobject_shape *shape = &v->object->shape;
	uint64_t place[UMOBJECT_RANK_MAX], ahead[UMOBJECT_RANK_MAX];
	struct box grid, chunk_box;
	bool more = v->container->b->ops->chunk_ahead;
	unsigned n = 0;

	shape_grid(shape, part, &grid);
	memcpy(place, grid.start, sizeof(place));
	memcpy(ahead, grid.start, sizeof(ahead));
	/* One by itself is read as well where it is asked for. */
	more = more && next_place(shape->rank, &grid, ahead);
	do {
		uint64_t number = shape_number(shape, place);

		for (; more && n < AHEAD; n++) {
			go_ahead(v, ahead, part);
			more = next_place(shape->rank, &grid, ahead);
		}
		n -= n > 0;
		umobject_chunk(shape, number, chunk_box.start, chunk_box.count);
		if (read_chunk(v, number, &chunk_box, part, data) < 0)
			return -1;
	} while (next_place(shape->rank, &grid, place));
	return 0;
}

int umobject_read(umobject_version *v, const uint64_t *start, const uint64_t *count, void *data)
{
	const struct umobject_shape *shape = &v->object->shape;
	struct box part = { { 0 }, { 0 } };
	unsigned d;

	if (!start != !count)
		return object_fail(EINVAL, "cannot read a part of '%s': only one of start and "
				   "count is NULL. Try both or neither", v->object->name);
	for (d = 0; d < shape->rank; d++) {
		part.start[d] = start ? start[d] : 0;
		part.count[d] = count ? count[d] : shape->dims[d];
	}
	if (!box_within(shape, &part))
		return object_fail(EINVAL, "cannot read a part of '%s': it is not within the "
				   "array. start[d] + count[d] must be at most dims[d]",
				   v->object->name);
	for (d = 0; d < shape->rank; d++)
		if (part.count[d] == 0)
			return 0;
	return read_box(v, &part, data);
}

/* How many elements from `at` on stand in one box: as large as can be, in as many of the last dimensions as are whole. */
static uint64_t next_box(const struct umobject_shape *shape, uint64_t at, uint64_t left, struct box *box)
{
	uint64_t place[UMOBJECT_RANK_MAX], inner = 1, n;
	unsigned d, e;

	for (d = shape->rank; d-- > 0;) {
		place[d] = at % shape->dims[d];
		at /= shape->dims[d];
	}
	/* The outermost dimension in which more than one step fits, with all behind it from 0 on. */
	d = shape->rank - 1;
	while (d > 0 && place[d] == 0 && inner * shape->dims[d] <= left)
		inner *= shape->dims[d--];
	n = left / inner < shape->dims[d] - place[d] ? left / inner : shape->dims[d] - place[d];
	for (e = 0; e < shape->rank; e++) {
		box->start[e] = place[e];
		box->count[e] = e < d ? 1 : e == d ? n : shape->dims[e];
	}
	return n * inner;
}

/* Whole elements. */
static int read_elements(umobject_version *v, char *to, uint64_t at, uint64_t n)
{
	const struct umobject_shape *shape = &v->object->shape;
	size_t size = umobject_type_size(shape->type);

	while (n) {
		struct box box = { { 0 }, { 0 } };
		uint64_t some = shape->rank ? next_box(shape, at, n, &box) : 1;

		if (read_box(v, &box, to) < 0)
			return -1;
		to += some * size;
		at += some;
		n -= some;
	}
	return 0;
}

/* A part of an element. */
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
	size_t element = umobject_type_size(v->object->shape.type), have = offset >= bytes ? 0 : size, n;
	char *to = data;

	if (have > bytes - offset)
		have = (size_t)(bytes - offset);
	memset(to + have, 0, size - have);
	if (have && offset % element) {
		n = element - offset % element < have ? (size_t)(element - offset % element) : have;
		if (read_edge(v, to, n, offset) < 0)
			return -1;
		to += n;
		offset += n;
		have -= n;
	}
	n = have / element * element;
	if (n && read_elements(v, to, offset / element, n / element) < 0)
		return -1;
	return have > n ? read_edge(v, to + n, have - n, offset + n) : 0;
}

int umobject_get(umobject_container *c, const char *name, const uint64_t *start, const uint64_t *count, void *data)
{
	umobject_version *v;
	int result, error;

	if (umobject_hold(c, name, 0, &v) < 0)
		return -1;
	result = umobject_read(v, start, count, data);
	error = errno;
	umobject_release(v);
	errno = error;
	return result;
}

/* ---- What is known of it ---- */

int umobject_stat(const umobject_version *v, struct umobject_stat *stat)
{
	const struct object *o = v->object;
	size_t size = stat->struct_size, i;
	struct umobject_stat s = { .struct_size = size, .shape = o->shape, .id = o->id, .version = o->version, .created = o->created,
				   .bytes = shape_bytes(&o->shape), .chunks = umobject_chunks(&o->shape), .name = o->name,
				   .attributes = (unsigned)o->nattributes };

	if (size < sizeof(s))
		return object_fail(EINVAL, "cannot use struct_size %zu: it must be the size of "
				   "struct umobject_stat", size);
	for (i = 0; i < o->nsources; i++)
		s.stored += o->sources[i].count;
	*stat = s;
	return 0;
}

const void *umobject_attribute(const umobject_version *v, const char *name, size_t *size)
{
	size_t i;

	for (i = 0; i < v->object->nattributes; i++) {
		const struct attribute *a = &v->object->attributes[i];

		if (strcmp(a->name, name) == 0) {
			*size = a->size;
			return a->value;
		}
	}
	return NULL;
}

const char *umobject_attribute_name(const umobject_version *v, unsigned index)
{
	return index < v->object->nattributes ? v->object->attributes[index].name : NULL;
}

static bool same_source(const struct source *a, const struct source *b)
{
	return a && b && id_same(&a->id, &b->id);
}

int version_check(umobject_version *v, const struct object *known, void (*each)(void *arg, const char *sentence), void *arg)
{
	const struct umobject_shape *shape = &v->object->shape;
	uint64_t chunks = umobject_chunks(shape), number;
	struct box box;
	char *data;
	int bad = 0;

	data = malloc(umobject_chunk(shape, 0, box.start, box.count) * umobject_type_size(shape->type));
	if (!data)
		return object_fail(ENOMEM, "cannot check a version: no memory for a chunk");
	for (number = 0; number < chunks; number++) {
		if (known && same_source(object_source(v->object, number), object_source(known, number)))
			continue;
		umobject_chunk(shape, number, box.start, box.count);
		if (read_chunk(v, number, &box, &box, data) == 0)
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
