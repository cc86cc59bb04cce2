/* SPDX-License-Identifier: BSD-3-Clause */
/* What a container keeps of a version: an Object of object.proto, with its checksum. */
#ifndef OBJECT_MESSAGE_H
#define OBJECT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ummap-object.h>

/* Chunks [first, first + count) have been put with this id. */
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
	struct umobject_id id, base;  /* base: while has_base, that of the version that this one is made from */
	bool has_base;
	char *name;
	uint64_t version;             /* 0: not committed yet */
	struct umobject_shape shape;  /* complete */
	uint64_t created;             /* nanoseconds since 1970 */
	struct source *sources;       /* by number, none overlaps another one */
	size_t nsources;
	struct attribute *attributes;
	size_t nattributes;
};

void object_free(struct object *o);
/* Where a chunk is from; NULL: nobody has put it, and it is zeros. */
const struct source *object_source(const struct object *o, uint64_t number);
/* This chunk is from id from now on. */
int object_add_source(struct object *o, const struct umobject_id *id, uint64_t number);
/* Sets an attribute, or replaces it. */
int object_set_attribute(struct object *o, const char *name, const void *value, size_t size);

/* As bytes, for the caller to free; NULL with a sentence. */
void *object_pack(const struct object *o, size_t *size);
/* From bytes; `what` is the subject of the sentence where they are damaged (EBADMSG). */
struct object *object_unpack(const void *bytes, size_t size, const char *what);
/* A copy; NULL with a sentence. */
struct object *object_copy(const struct object *o);

/* What a container says of itself. */
#define KEEP_MAX 1000
#define DEVICES_MAX 256

struct description {
	unsigned keep;
	char **devices;
	size_t ndevices;
};

void *description_pack(const struct description *d, size_t *size);
int description_unpack(const void *bytes, size_t size, const char *what, struct description *d);
void description_free(struct description *d);

#endif
