/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the structures of this library and the messages of object.proto. What is unpacked comes from storage: nothing of it
 * is trusted before it is checked, also where the checksum is right.
 */
#include "object/message.h"

#include "object/error.h"
#include "object/id.h"
#include "object/object.pb-c.h"
#include "object/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define FORMAT 1

void object_free(struct object *o)
{
	size_t i;

	if (!o)
		return;
	for (i = 0; i < o->nattributes; i++) {
		free(o->attributes[i].name);
		free(o->attributes[i].value);
	}
	free(o->attributes);
	free(o->sources);
	free(o->name);
	free(o);
}

/* The first source that ends behind a chunk. */
static size_t source_behind(const struct object *o, uint64_t number)
{
	size_t low = 0, high = o->nsources;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (o->sources[middle].first + o->sources[middle].count > number)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

const struct source *object_source(const struct object *o, uint64_t number)
{
	size_t i = source_behind(o, number);

	return i < o->nsources && o->sources[i].first <= number ? &o->sources[i] : NULL;
}

static int insert_source(struct object *o, size_t at, const struct source *s)
{
	struct source *grown = realloc(o->sources, (o->nsources + 1) * sizeof(*grown));

	if (!grown)
		return object_fail(ENOMEM, "cannot list the chunks of a version: no memory");
	o->sources = grown;
	memmove(&grown[at + 1], &grown[at], (o->nsources - at) * sizeof(*grown));
	grown[at] = *s;
	o->nsources++;
	return 0;
}

static void remove_source(struct object *o, size_t at)
{
	o->nsources--;
	memmove(&o->sources[at], &o->sources[at + 1], (o->nsources - at) * sizeof(*o->sources));
}

/* Takes a chunk out of the source that has it: what stands before and behind stays. */
static int cut(struct object *o, uint64_t number)
{
	size_t i = source_behind(o, number);
	struct source *s = &o->sources[i], before, behind;

	if (i == o->nsources || s->first > number)
		return 0;
	before = (struct source){ s->id, s->first, number - s->first };
	behind = (struct source){ s->id, number + 1, s->first + s->count - number - 1 };
	if (before.count && behind.count) {
		if (insert_source(o, i + 1, &behind) < 0)
			return -1;
		o->sources[i] = before;
	} else if (before.count) {
		*s = before;
	} else if (behind.count) {
		*s = behind;
	} else {
		remove_source(o, i);
	}
	return 0;
}

int object_add_source(struct object *o, const struct umobject_id *id, uint64_t number)
{
	const struct source *has = object_source(o, number);
	struct source *s;
	size_t i;

	if (has && id_same(&has->id, id))
		return 0;
	if (cut(o, number) < 0)
		return -1;
	i = source_behind(o, number);
	s = o->sources;
	if (i > 0 && id_same(&s[i - 1].id, id) && s[i - 1].first + s[i - 1].count == number) {
		s[i - 1].count++;
		if (i < o->nsources && id_same(&s[i].id, id) && s[i].first == number + 1) {
			s[i - 1].count += s[i].count;
			remove_source(o, i);
		}
		return 0;
	}
	if (i < o->nsources && id_same(&s[i].id, id) && s[i].first == number + 1) {
		s[i].first--;
		s[i].count++;
		return 0;
	}
	return insert_source(o, i, &(struct source){ *id, number, 1 });
}

static int attribute_fill(struct attribute *a, const char *name, const void *value, size_t size)
{
	*a = (struct attribute){ strdup(name), malloc(size ? size : 1), size };
	if (a->name && a->value) {
		if (size)
			memcpy(a->value, value, size);
		return 0;
	}
	free(a->name);
	free(a->value);
	return object_fail(ENOMEM, "cannot store the attribute '%s' of %zu bytes: no memory", name,
			   size);
}

int object_set_attribute(struct object *o, const char *name, const void *value, size_t size)
{
	struct attribute *grown, fresh;
	size_t i;

	for (i = 0; i < o->nattributes && strcmp(o->attributes[i].name, name) != 0; i++)
		;
	if (attribute_fill(&fresh, name, value, size) < 0)
		return -1;
	if (i < o->nattributes) {
		free(o->attributes[i].name);
		free(o->attributes[i].value);
	} else {
		grown = realloc(o->attributes, (o->nattributes + 1) * sizeof(*grown));
		if (!grown) {
			free(fresh.name);
			free(fresh.value);
			return object_fail(ENOMEM, "cannot store an attribute: no memory");
		}
		o->attributes = grown;
		o->nattributes++;
	}
	o->attributes[i] = fresh;
	return 0;
}

/* ---- To bytes ---- */

static ProtobufCBinaryData binary(const void *data, size_t len)
{
	return (ProtobufCBinaryData){ len, (uint8_t *)(uintptr_t)data };
}

/* Bytes of a message, with their checksum, as they are stored. */
static void *wrap(const ProtobufCMessage *m, size_t *size)
{
	Ummap__Stored stored = UMMAP__STORED__INIT;
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *inner = malloc(len ? len : 1), *outer = NULL;

	if (inner) {
		protobuf_c_message_pack(m, inner);
		stored.object = binary(inner, len);
		stored.checksum = XXH3_64bits(inner, len);
		*size = ummap__stored__get_packed_size(&stored);
		outer = malloc(*size);
		if (outer)
			ummap__stored__pack(&stored, outer);
	}
	free(inner);
	if (!outer)
		object_fail(ENOMEM, "cannot encode %zu bytes: no memory", len);
	return outer;
}

/* What a message points to while it is packed. */
struct parts {
	Ummap__Source *sources;
	Ummap__Source **psources;
	Ummap__Attribute *attributes;
	Ummap__Attribute **pattributes;
};

static void point_to_sources(const struct object *o, const struct parts *p)
{
	size_t i;

	for (i = 0; i < o->nsources; i++) {
		Ummap__Source *s = p->psources[i] = &p->sources[i];

		ummap__source__init(s);
		s->id = binary(o->sources[i].id.bytes, sizeof(o->sources[i].id.bytes));
		s->first = o->sources[i].first;
		s->count = o->sources[i].count;
	}
}

static void point_to_attributes(const struct object *o, const struct parts *p)
{
	size_t i;

	for (i = 0; i < o->nattributes; i++) {
		Ummap__Attribute *a = p->pattributes[i] = &p->attributes[i];

		ummap__attribute__init(a);
		a->name = binary(o->attributes[i].name, strlen(o->attributes[i].name));
		a->value = binary(o->attributes[i].value, o->attributes[i].size);
	}
}

void *object_pack(const struct object *o, size_t *size)
{
	struct parts p = { calloc(o->nsources + 1, sizeof(*p.sources)), calloc(o->nsources + 1, sizeof(*p.psources)),
			   calloc(o->nattributes + 1, sizeof(*p.attributes)), calloc(o->nattributes + 1, sizeof(*p.pattributes)) };
	uint64_t dims[UMOBJECT_RANK_MAX], chunk[UMOBJECT_RANK_MAX];
	Ummap__Object m = UMMAP__OBJECT__INIT;
	void *bytes = NULL;

	memcpy(dims, o->shape.dims, sizeof(dims));
	memcpy(chunk, o->shape.chunk, sizeof(chunk));
	m.id = binary(o->id.bytes, sizeof(o->id.bytes));
	m.name = binary(o->name, strlen(o->name));
	m.version = o->version;
	m.type = o->shape.type;
	m.n_dims = m.n_chunk = o->shape.rank;
	m.dims = dims;
	m.chunk = chunk;
	m.created = o->created;
	if (o->has_base)
		m.made_from = binary(o->base.bytes, sizeof(o->base.bytes));
	if (p.sources && p.psources && p.attributes && p.pattributes) {
		point_to_sources(o, &p);
		point_to_attributes(o, &p);
		m.n_sources = o->nsources;
		m.sources = p.psources;
		m.n_attributes = o->nattributes;
		m.attributes = p.pattributes;
		bytes = wrap(&m.base, size);
	} else {
		object_fail(ENOMEM, "cannot encode a version or a container: no memory");
	}
	free(p.sources);
	free(p.psources);
	free(p.attributes);
	free(p.pattributes);
	return bytes;
}

/* ---- From bytes ---- */

/* Whether bytes of storage can be a text: a zero in it would end it early. */
static char *text_of(const ProtobufCBinaryData *b)
{
	return b->len && !memchr(b->data, 0, b->len) ? strndup((const char *)b->data, b->len) : NULL;
}

static bool id_of(const ProtobufCBinaryData *b, struct umobject_id *id)
{
	if (b->len != sizeof(id->bytes))
		return false;
	memcpy(id->bytes, b->data, sizeof(id->bytes));
	return true;
}

static bool take_shape(const Ummap__Object *m, struct umobject_shape *shape)
{
	struct umobject_shape given = { .type = (enum umobject_type)m->type, .rank = (unsigned)m->n_dims };

	if (m->n_dims > UMOBJECT_RANK_MAX || m->n_dims != m->n_chunk)
		return false;
	if (m->n_dims) {
		memcpy(given.dims, m->dims, m->n_dims * sizeof(*m->dims));
		memcpy(given.chunk, m->chunk, m->n_dims * sizeof(*m->chunk));
	}
	return shape_complete(&given, shape) == 0;
}

static bool take_sources(const Ummap__Object *m, struct object *o)
{
	uint64_t chunks = umobject_chunks(&o->shape), end = 0;
	size_t i;

	o->sources = calloc(m->n_sources + 1, sizeof(*o->sources));
	if (!o->sources)
		return false;
	for (i = 0; i < m->n_sources; i++) {
		const Ummap__Source *from = m->sources[i];

		if (!id_of(&from->id, &o->sources[i].id) || from->first < end || from->first > chunks || from->count == 0 ||
		    from->count > chunks - from->first)
			return false;
		o->sources[i].first = from->first;
		o->sources[i].count = from->count;
		end = from->first + from->count;
	}
	o->nsources = m->n_sources;
	return true;
}

static bool take_attributes(const Ummap__Object *m, struct object *o)
{
	size_t i;

	for (i = 0; i < m->n_attributes; i++) {
		const Ummap__Attribute *a = m->attributes[i];
		char *name = text_of(&a->name);
		bool taken = name && object_set_attribute(o, name, a->value.data, a->value.len) == 0;

		free(name);
		if (!taken)
			return false;
	}
	return true;
}

static bool take_base(const Ummap__Object *m, struct object *o)
{
	o->has_base = m->made_from.len > 0;
	return !o->has_base || id_of(&m->made_from, &o->base);
}

static struct object *take(const Ummap__Object *m)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->name = text_of(&m->name);
	o->version = m->version;
	o->created = m->created;
	if (o->name && id_of(&m->id, &o->id) && take_base(m, o) &&
	    take_shape(m, &o->shape) && take_sources(m, o) && take_attributes(m, o))
		return o;
	object_free(o);
	return NULL;
}

/* The message inside; NULL: the bytes are none, or not as they were stored. */
static ProtobufCMessage *unwrap(const ProtobufCMessageDescriptor *kind, const void *bytes, size_t size)
{
	Ummap__Stored *stored = ummap__stored__unpack(NULL, size, bytes);
	ProtobufCMessage *m = NULL;

	if (stored && XXH3_64bits(stored->object.data, stored->object.len) == stored->checksum)
		m = protobuf_c_message_unpack(kind, NULL, stored->object.len, stored->object.data);
	if (stored)
		ummap__stored__free_unpacked(stored, NULL);
	return m;
}

struct object *object_unpack(const void *bytes, size_t size, const char *what)
{
	int before = errno;
	ProtobufCMessage *m;
	struct object *o;

	/* What cannot be unpacked for want of memory is not damaged. */
	errno = 0;
	m = unwrap(&ummap__object__descriptor, bytes, size);
	o = m ? take((const Ummap__Object *)m) : NULL;
	if (!o && errno == ENOMEM)
		object_fail(ENOMEM, "cannot read '%s': no memory", what);
	else if (!o)
		object_fail(EBADMSG, "cannot read '%s': its record is damaged", what);
	else
		errno = before;
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	return o;
}

struct object *object_copy(const struct object *o)
{
	size_t size;
	void *bytes = object_pack(o, &size);
	struct object *copy = bytes ? object_unpack(bytes, size, "the copy of a version") : NULL;

	free(bytes);
	return copy;
}

/* ---- Containers ---- */

void *description_pack(const struct description *d, size_t *size)
{
	Ummap__Container m = UMMAP__CONTAINER__INIT;
	ProtobufCBinaryData *devices = calloc(d->ndevices + 1, sizeof(*devices));
	void *bytes = NULL;
	size_t i;

	if (devices) {
		for (i = 0; i < d->ndevices; i++)
			devices[i] = binary(d->devices[i], strlen(d->devices[i]));
		m.format = FORMAT;
		m.keep = d->keep;
		m.n_devices = d->ndevices;
		m.devices = devices;
		bytes = wrap(&m.base, size);
	} else {
		object_fail(ENOMEM, "cannot encode a version or a container: no memory");
	}
	free(devices);
	return bytes;
}

void description_free(struct description *d)
{
	size_t i;

	for (i = 0; i < d->ndevices; i++)
		free(d->devices[i]);
	free(d->devices);
	*d = (struct description){ 0 };
}

static bool take_devices(const Ummap__Container *m, struct description *d)
{
	d->devices = calloc(m->n_devices + 1, sizeof(*d->devices));
	if (!d->devices)
		return false;
	for (d->ndevices = 0; d->ndevices < m->n_devices; d->ndevices++) {
		d->devices[d->ndevices] = text_of(&m->devices[d->ndevices]);
		if (!d->devices[d->ndevices])
			return false;
	}
	return true;
}

int description_unpack(const void *bytes, size_t size, const char *what, struct description *d)
{
	Ummap__Container *m;
	int result = 0, before = errno;

	*d = (struct description){ 0 };
	errno = 0;
	m = (Ummap__Container *)unwrap(&ummap__container__descriptor, bytes, size);
	if (!m)
		return errno == ENOMEM ?
			object_fail(ENOMEM, "cannot open the container '%s': no memory", what) :
			object_fail(EBADMSG, "cannot open the container '%s': it is damaged, or it "
				    "is not a container", what);
	d->keep = m->keep;
	if (m->format != FORMAT)
		result = object_fail(EPROTO, "cannot read the container '%s': it has format %u, and this "
				     "release knows format %d. Try the release that made it", what,
				     m->format, FORMAT);
	else if (m->n_devices == 0 || m->n_devices > DEVICES_MAX || !take_devices(m, d) || d->keep == 0 || d->keep > KEEP_MAX)
		result = errno == ENOMEM ?
			object_fail(ENOMEM, "cannot open the container '%s': no memory", what) :
			object_fail(EBADMSG, "cannot open the container '%s': its description is "
				    "damaged", what);
	if (result < 0)
		description_free(d);
	else
		errno = before;
	ummap__container__free_unpacked(m, NULL);
	return result;
}
