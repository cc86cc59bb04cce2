/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages come from storage, so every field is checked, even if the checksum is right. */
#include "object/message.h"

#include "object/error.h"
#include "object/id.h"
#include "object/object.pb-c.h"
#include "object/shape.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define FORMAT 1

static void free_attribute(struct attribute *a)
{
	free(a->name);
	free(a->value);
}

void object_free(struct object *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->nattributes; i++)
		free_attribute(&o->attributes[i]);
	free(o->attributes);
	free(o->sources);
	free(o->name);
	free(o);
}

/* The index of the first source that ends behind a chunk. */
static size_t find_source(const struct object *o, uint64_t number)
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
	size_t i = find_source(o, number);

	return i < o->nsources && o->sources[i].first <= number ? &o->sources[i] : NULL;
}

static int insert_source(struct object *o, size_t at, const struct source *s)
{
	struct source *grown = realloc(o->sources, (o->nsources + 1) * sizeof(*grown));

	if (!grown)
		return fail_no_memory("list the chunks of a version");
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

/* Removes a chunk from the source that has it. */
static int remove_chunk(struct object *o, uint64_t number)
{
	size_t i = find_source(o, number);
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
	bool follows, precedes; /* whether a source of this id ends before it, or is behind it */
	size_t i;

	if (has && id_same(&has->id, id))
		return 0;
	if (remove_chunk(o, number) < 0)
		return -1;
	i = find_source(o, number);
	s = o->sources;
	follows = i > 0 && id_same(&s[i - 1].id, id) && s[i - 1].first + s[i - 1].count == number;
	precedes = i < o->nsources && id_same(&s[i].id, id) && s[i].first == number + 1;
	if (!follows && !precedes)
		return insert_source(o, i, &(struct source){ *id, number, 1 });
	if (follows) {
		s[i - 1].count += 1 + (precedes ? s[i].count : 0);
		if (precedes)
			remove_source(o, i);
	} else {
		s[i].first--;
		s[i].count++;
	}
	return 0;
}

struct attribute *object_attribute(const struct object *o, const char *name)
{
	for (size_t i = 0; i < o->nattributes; i++)
		if (strcmp(o->attributes[i].name, name) == 0)
			return &o->attributes[i];
	return NULL;
}

int object_set_attribute(struct object *o, const char *name, const void *value, size_t size)
{
	struct attribute fresh = { strdup(name), malloc(size + 1), size };
	struct attribute *a = object_attribute(o, name), *grown = o->attributes;

	if (!a)
		grown = realloc(o->attributes, (o->nattributes + 1) * sizeof(*grown));
	if (grown)
		o->attributes = grown;
	if (!grown || !fresh.name || !fresh.value) {
		free_attribute(&fresh);
		return fail_no_memory("store an attribute");
	}
	if (size)
		memcpy(fresh.value, value, size);
	if (a)
		free_attribute(a);
	else
		a = &o->attributes[o->nattributes++];
	*a = fresh;
	return 0;
}

/* ---- To bytes ---- */

static ProtobufCBinaryData binary(const void *data, size_t len)
{
	return (ProtobufCBinaryData){ len, (uint8_t *)(uintptr_t)data };
}

/* Encodes a message with its checksum. */
static struct bytes wrap_message(const ProtobufCMessage *m)
{
	Ummap__Stored stored = UMMAP__STORED__INIT;
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *inner = malloc(len + 1);
	struct bytes outer = { NULL, 0 };

	if (inner) {
		protobuf_c_message_pack(m, inner);
		stored.object = binary(inner, len);
		stored.checksum = XXH3_64bits(inner, len);
		outer.size = ummap__stored__get_packed_size(&stored);
		outer.data = malloc(outer.size);
		if (outer.data)
			ummap__stored__pack(&stored, outer.data);
	}
	free(inner);
	if (!outer.data)
		fail_no_memory("encode a version or a container");
	return outer;
}

/* The parts of an object's message, which the message refers to by arrays of pointers. */
struct parts {
	Ummap__Source *sources, **source_pointers;
	Ummap__Attribute *attributes, **attribute_pointers;
};

static void fill_parts(const struct object *o, const struct parts *p)
{
	for (size_t i = 0; i < o->nsources; i++) {
		Ummap__Source *s = p->source_pointers[i] = &p->sources[i];

		ummap__source__init(s);
		s->id = binary(o->sources[i].id.bytes, sizeof(o->sources[i].id.bytes));
		s->first = o->sources[i].first;
		s->count = o->sources[i].count;
	}
	for (size_t i = 0; i < o->nattributes; i++) {
		Ummap__Attribute *a = p->attribute_pointers[i] = &p->attributes[i];

		ummap__attribute__init(a);
		a->name = binary(o->attributes[i].name, strlen(o->attributes[i].name));
		a->value = binary(o->attributes[i].value, o->attributes[i].size);
	}
}

struct bytes object_pack(const struct object *o)
{
	struct parts p = { calloc(o->nsources + 1, sizeof(*p.sources)),
			   calloc(o->nsources + 1, sizeof(*p.source_pointers)),
			   calloc(o->nattributes + 1, sizeof(*p.attributes)),
			   calloc(o->nattributes + 1, sizeof(*p.attribute_pointers)) };
	struct umobject_shape shape = o->shape;
	Ummap__Object m = UMMAP__OBJECT__INIT;
	struct bytes bytes = { NULL, 0 };

	m.id = binary(o->id.bytes, sizeof(o->id.bytes));
	m.name = binary(o->name, strlen(o->name));
	m.version = o->version;
	m.type = shape.type;
	m.n_dims = m.n_chunk = shape.rank;
	m.dims = shape.dims;
	m.chunk = shape.chunk;
	m.created = o->created;
	if (o->has_base)
		m.made_from = binary(o->base.bytes, sizeof(o->base.bytes));
	m.n_sources = o->nsources;
	m.sources = p.source_pointers;
	m.n_attributes = o->nattributes;
	m.attributes = p.attribute_pointers;
	if (p.sources && p.source_pointers && p.attributes && p.attribute_pointers) {
		fill_parts(o, &p);
		bytes = wrap_message(&m.base);
	} else {
		fail_no_memory("encode a version");
	}
	free(p.sources);
	free(p.source_pointers);
	free(p.attributes);
	free(p.attribute_pointers);
	return bytes;
}

/* ---- From bytes ---- */

/* The text in a field; NULL: it is empty or contains a zero. */
static char *copy_text(const ProtobufCBinaryData *b)
{
	bool is_text = b->len && !memchr(b->data, 0, b->len);

	return is_text ? strndup((const char *)b->data, b->len) : NULL;
}

static bool take_id(const ProtobufCBinaryData *b, struct umobject_id *id)
{
	if (b->len != sizeof(id->bytes))
		return false;
	memcpy(id->bytes, b->data, sizeof(id->bytes));
	return true;
}

static bool take_shape(const Ummap__Object *m, struct umobject_shape *shape)
{
	struct umobject_shape given = { .type = (enum umobject_type)m->type,
		.rank = (unsigned)m->n_dims };

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

	o->sources = calloc(m->n_sources + 1, sizeof(*o->sources));
	if (!o->sources)
		return false;
	for (size_t i = 0; i < m->n_sources; i++) {
		const Ummap__Source *from = m->sources[i];

		if (!take_id(&from->id, &o->sources[i].id) || from->first < end ||
		    from->first > chunks || from->count == 0 || from->count > chunks - from->first)
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
	for (size_t i = 0; i < m->n_attributes; i++) {
		const Ummap__Attribute *a = m->attributes[i];
		char *name = copy_text(&a->name);
		bool taken = name &&
			object_set_attribute(o, name, a->value.data, a->value.len) == 0;

		free(name);
		if (!taken)
			return false;
	}
	return true;
}

static bool take_base(const Ummap__Object *m, struct object *o)
{
	o->has_base = m->made_from.len > 0;
	return !o->has_base || take_id(&m->made_from, &o->base);
}

static struct object *take_object(const Ummap__Object *m)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->name = copy_text(&m->name);
	o->version = m->version;
	o->created = m->created;
	if (o->name && take_id(&m->id, &o->id) && take_base(m, o) &&
	    take_shape(m, &o->shape) && take_sources(m, o) && take_attributes(m, o))
		return o;
	object_free(o);
	return NULL;
}

/* Decodes a message; NULL: it is damaged, or there is no memory (ENOMEM). */
static ProtobufCMessage *unwrap_message(const ProtobufCMessageDescriptor *kind,
					const struct bytes *bytes)
{
	Ummap__Stored *stored;
	ProtobufCMessage *m = NULL;

	errno = 0;
	stored = ummap__stored__unpack(NULL, bytes->size, bytes->data);
	if (stored && XXH3_64bits(stored->object.data, stored->object.len) == stored->checksum)
		m = protobuf_c_message_unpack(kind, NULL, stored->object.len, stored->object.data);
	if (stored)
		ummap__stored__free_unpacked(stored, NULL);
	return m;
}

struct object *object_unpack(const struct bytes *bytes, const char *what)
{
	int before = errno;
	ProtobufCMessage *m = unwrap_message(&ummap__object__descriptor, bytes);
	struct object *o = m ? take_object((const Ummap__Object *)m) : NULL;

	if (o)
		errno = before;
	else if (errno == ENOMEM)
		fail_no_memory("read the record of a version");
	else
		object_fail(EBADMSG, "cannot read '%s': its record is damaged", what);
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	return o;
}

struct object *object_copy(const struct object *o)
{
	struct bytes bytes = object_pack(o);
	struct object *copy = bytes.data ? object_unpack(&bytes, "the copy of a version") : NULL;

	free(bytes.data);
	return copy;
}

/* ---- Containers ---- */

struct bytes description_pack(const struct description *d)
{
	Ummap__Container m = UMMAP__CONTAINER__INIT;
	ProtobufCBinaryData devices[DEVICES_MAX];

	for (size_t i = 0; i < d->ndevices; i++)
		devices[i] = binary(d->devices[i], strlen(d->devices[i]));
	m.format = FORMAT;
	m.keep = d->keep;
	m.n_devices = d->ndevices;
	m.devices = devices;
	return wrap_message(&m.base);
}

void description_free(struct description *d)
{
	for (size_t i = 0; i < d->ndevices; i++)
		free(d->devices[i]);
	free(d->devices);
	*d = (struct description){ 0 };
}

static bool take_devices(const Ummap__Container *m, struct description *d)
{
	if (m->n_devices == 0 || m->n_devices > DEVICES_MAX)
		return false;
	d->devices = calloc(m->n_devices, sizeof(*d->devices));
	for (size_t i = 0; d->devices && i < m->n_devices; i++) {
		d->devices[i] = copy_text(&m->devices[i]);
		if (!d->devices[i])
			return false;
		d->ndevices++;
	}
	return d->devices;
}

int description_unpack(const struct bytes *bytes, const char *what, struct description *d)
{
	int before = errno;
	Ummap__Container *m = (Ummap__Container *)unwrap_message(&ummap__container__descriptor,
								 bytes);
	bool is_known = m && m->format == FORMAT;

	*d = (struct description){ .keep = m ? m->keep : 0 };
	if (is_known && d->keep && d->keep <= KEEP_MAX && take_devices(m, d)) {
		ummap__container__free_unpacked(m, NULL);
		errno = before;
		return 0;
	}
	if (errno == ENOMEM)
		fail_no_memory("open the container");
	else if (!m || is_known)
		object_fail(EBADMSG, "cannot open the container '%s': it is damaged, or it is not "
			    "a container", what);
	else
		object_fail(EPROTO, "cannot read the container '%s': it has format %u, and this "
			    "release knows format %d. Try the release that made it", what,
			    m->format, FORMAT);
	description_free(d);
	if (m)
		ummap__container__free_unpacked(m, NULL);
	return -1;
}
