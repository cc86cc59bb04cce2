/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions and containers as messages of object.proto, with a checksum: the form that is stored. */
#ifndef OBJECT_MESSAGE_H
#define OBJECT_MESSAGE_H

#include "object/backend.h"

/* The chunks [first, first + count), which were put with this id. */
struct source {
	struct umobject_id id;
	uint64_t first, count;
};

struct attribute {
	char *name;
	void *value;
	size_t size;
};

struct object {
	struct umobject_id id;
	struct umobject_id base;     /* version that this one is made from, if has_base */
	bool has_base;
	char *name;
	uint64_t version;            /* number; 0: not committed yet */
	struct umobject_shape shape; /* complete */
	uint64_t created;            /* nanoseconds since 1970 */
	struct source *sources;      /* sorted by number, without overlap; other chunks are zeros */
	size_t nsources;
	struct attribute *attributes;
	size_t nattributes;
};

void object_free(struct object *o);
/* The source that has a chunk; NULL: the chunk is zeros. */
const struct source *object_source(const struct object *o, uint64_t number);
/* Makes id the source of a chunk. */
int object_add_source(struct object *o, const struct umobject_id *id, uint64_t number);
/* NULL: there is no such attribute. */
struct attribute *object_attribute(const struct object *o, const char *name);
/* Sets an attribute, or replaces it. */
int object_set_attribute(struct object *o, const char *name, const void *value, size_t size);

/* Encodes an object. data is NULL on an error. */
struct bytes object_pack(const struct object *o);
/* Decodes an object. what: its name in messages. NULL: ENOMEM, EBADMSG (damaged). */
struct object *object_unpack(const struct bytes *bytes, const char *what);
struct object *object_copy(const struct object *o);

#define KEEP_MAX 1000
#define DEVICES_MAX 256

/* The properties of a container. */
struct description {
	unsigned keep;   /* number of versions of a name to keep */
	char **devices;  /* folders of chunks, relative to the container or absolute */
	size_t ndevices;
};

struct bytes description_pack(const struct description *d);
int description_unpack(const struct bytes *bytes, const char *what, struct description *d);
void description_free(struct description *d);

#endif
