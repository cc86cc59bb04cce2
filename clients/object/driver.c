/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver `object`: an object's bytes as a store. Writes change a draft. A flush puts each chunk
 * that was written, and commits a new version, which has all other chunks of the old one. So a
 * flush happens entirely or not at all, and a failed one can be repeated. The library serializes
 * the calls of a handle.
 */
#include "common/size.h"
#include "object/keys.h"
#include "object/shape.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ummap-driver.h>
#include <ummap-object.h>

struct handle {
	umobject_container *container;
	char *name;
	umobject_version *base;        /* NULL: there is no object of that name yet */
	struct umobject_shape shape;
	uint64_t size;                 /* bytes; 0: not known yet */
	umobject_draft *draft;         /* changes since the base */
	bool can_grow;                 /* whether it is a new object without dimensions: bytes */
};

static const struct {
	const char *name;
	enum umobject_type type;
} types[] = {
	{ "int8", UMOBJECT_INT8 }, { "uint8", UMOBJECT_UINT8 }, { "int16", UMOBJECT_INT16 },
	{ "uint16", UMOBJECT_UINT16 }, { "int32", UMOBJECT_INT32 }, { "uint32", UMOBJECT_UINT32 },
	{ "int64", UMOBJECT_INT64 }, { "uint64", UMOBJECT_UINT64 }, { "float", UMOBJECT_FLOAT },
	{ "double", UMOBJECT_DOUBLE }, { "ldouble", UMOBJECT_LDOUBLE },
};

/* ---- Opening ---- */

/* The keys of a URI. */
struct keys {
	char container[1200];          /* keys of the container: "?conf=..." */
	uint64_t version;              /* 0: not given */
	struct umobject_id id;
	bool has_id;
	struct umobject_shape shape;
	unsigned chunk_rank;
};

static int fail_with(struct ummap_geom *geom, int error, const char *format, const char *what)
{
	snprintf(geom->why, sizeof(geom->why), format, what);
	return -error;
}

/* Fails with the message of the object library. */
static int fail_object(struct ummap_geom *geom)
{
	int error = errno ? errno : EIO;

	snprintf(geom->why, sizeof(geom->why), "%s", umobject_errormsg());
	return -error;
}

static bool parse_id(const char *text, struct umobject_id *id)
{
	const char *digits = "0123456789abcdef";
	size_t i, n = 0;

	for (i = 0; text[i] && n < 32; i++) {
		const char *at = strchr(digits, text[i]);

		if (text[i] == '-')
			continue;
		if (!at)
			return false;
		id->bytes[n / 2] = (uint8_t)(id->bytes[n / 2] << 4 | (at - digits));
		n++;
	}
	return n == 32 && !text[i];
}

static bool parse_type(const char *text, struct keys *keys)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strcmp(types[i].name, text) == 0)
			keys->shape.type = types[i].type;
	return keys->shape.type;
}

/* Adds a key to those of the container. */
static int pass_key(const struct ummap_key *k, struct keys *keys, struct ummap_geom *geom)
{
	size_t len = strlen(keys->container), room = sizeof(keys->container) - len;
	int n = snprintf(keys->container + len, room, "%c%s=%s", len ? '&' : '?', k->name,
			 k->value);

	return n < 0 || (size_t)n >= room ?
		fail_with(geom, ENAMETOOLONG, "cannot use the key '%s': its value is too long",
			  k->name) : 0;
}

static const struct {
	const char *name, *type;
} key_types[] = {
#define KEY_TYPE(name, type, default, meaning) { name, type },
	OBJECT_KEYS(KEY_TYPE)
};

static int refuse_value(const struct ummap_key *k, struct ummap_geom *geom)
{
	size_t i = 0;

	while (strcmp(key_types[i].name, k->name) != 0)
		i++;
	snprintf(geom->why, sizeof(geom->why), "cannot use %s='%.40s': it must be %s", k->name,
		 k->value, key_types[i].type);
	return -EINVAL;
}

static bool parse_value(const struct ummap_key *k, struct keys *keys)
{
	struct umobject_shape *shape = &keys->shape;

	if (strcmp(k->name, "version") == 0)
		return size_parse_count(k->value, &keys->version) == 0 && keys->version > 0;
	if (strcmp(k->name, "id") == 0)
		return keys->has_id = parse_id(k->value, &keys->id);
	if (strcmp(k->name, "type") == 0)
		return parse_type(k->value, keys);
	if (strcmp(k->name, "dims") == 0)
		return (shape->rank = size_parse_dims(k->value, shape->dims, UMOBJECT_RANK_MAX));
	return (keys->chunk_rank = size_parse_dims(k->value, shape->chunk, UMOBJECT_RANK_MAX));
}

static int parse_key(const struct ummap_key *k, struct keys *keys, struct ummap_geom *geom)
{
	char word[64];

	snprintf(word, sizeof(word), " %.60s ", k->name);
	if (strstr(" " CONTAINER_KEYS(KEY_NAME), word))
		return pass_key(k, keys, geom);
	return parse_value(k, keys) ? 0 : refuse_value(k, geom);
}

static int parse_keys(const struct ummap_uri *uri, struct keys *keys, struct ummap_geom *geom)
{
	for (unsigned i = 0; i < uri->nkeys; i++) {
		int err = parse_key(&uri->keys[i], keys, geom);

		if (err)
			return err;
	}
	if (keys->shape.rank && !keys->shape.type)
		keys->shape.type = UMOBJECT_UINT8;
	if (keys->chunk_rank && keys->shape.rank && keys->chunk_rank != keys->shape.rank)
		return fail_with(geom, EINVAL, "%s", "cannot use dims and chunk: they must have "
				 "the same number of numbers");
	if (!keys->shape.rank && (keys->shape.type || keys->chunk_rank > 1))
		return fail_with(geom, EINVAL, "%s",
				 "cannot use type and chunk without dims. Try dims=, as 1000x200");
	return 0;
}

static int open_container(struct handle *h, const char *path, bool write, const struct keys *keys,
			  struct ummap_geom *geom)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	const char *name;

	attr.flags = write ? 0 : UMOBJECT_READ_ONLY;
	if (umobject_open_path(path, keys->container, &attr, &h->container, &name) < 0)
		return fail_object(geom);
	h->name = strdup(name);
	return h->name ? 0 : -ENOMEM;
}

static int take_shape(struct handle *h, const struct umobject_version *base)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };

	if (umobject_stat(base, &st) < 0)
		return -errno;
	h->shape = st.shape;
	h->size = st.bytes;
	return 0;
}

/* Takes the shape of a new object: bytes in chunks of 1 MiB, unless the URI has keys. */
static int take_keys(struct handle *h, const struct keys *keys, struct ummap_geom *geom)
{
	uint64_t chunk = keys->shape.chunk[0] ? keys->shape.chunk[0] : 1 << 20;

	h->shape = keys->shape;
	if (!h->shape.rank) {
		h->can_grow = true;
		h->shape = (struct umobject_shape){ UMOBJECT_UINT8, 1, { 0 }, { chunk } };
		return 0;
	}
	if (!umobject_chunks(&h->shape))
		return fail_object(geom);
	h->size = shape_bytes(&h->shape);
	return 0;
}

static int hold_base(struct handle *h, const struct keys *keys, int oflags,
		     struct ummap_geom *geom)
{
	int result = keys->has_id ? umobject_hold_id(h->container, &keys->id, &h->base) :
		umobject_hold(h->container, h->name, keys->version, &h->base);

	if (result == 0)
		return take_shape(h, h->base);
	h->base = NULL;
	if (errno == ENOENT && oflags & UMMAP_O_CREATE && !keys->has_id && !keys->version)
		return take_keys(h, keys, geom);
	return fail_object(geom);
}

static int object_close(void *handle)
{
	struct handle *h = handle;

	umobject_draft_end(h->draft);
	umobject_release(h->base);
	umobject_close(h->container);
	free(h->name);
	free(h);
	return 0;
}

static int result_of(int result)
{
	return result < 0 ? -errno : 0;
}

static int begin_put(struct handle *h, umobject_put **put)
{
	struct umobject_shape shape = h->shape;

	if (h->can_grow)
		shape.dims[0] = h->size ? h->size : 1;
	return h->base ? umobject_begin_from(h->base, put, NULL) :
		umobject_begin(h->container, h->name, &shape, put, NULL);
}

/* A user who may not write gets the error when the object is opened, and not at the first flush.
 * Other errors may be gone by then. */
static int check_access(struct handle *h, struct ummap_geom *geom)
{
	umobject_put *put;

	if (begin_put(h, &put) < 0)
		return errno == EACCES || errno == EPERM || errno == EROFS ? fail_object(geom) : 0;
	umobject_abandon(put);
	return 0;
}

static int object_open(const struct ummap_uri *uri, int oflags, void **handle,
		       struct ummap_geom *geom)
{
	struct handle *h = calloc(1, sizeof(*h));
	struct keys keys = { 0 };
	int err;

	if (!h)
		return -ENOMEM;
	err = parse_keys(uri, &keys, geom);
	if (!err)
		err = open_container(h, uri->path, oflags & UMMAP_O_WRITE, &keys, geom);
	if (!err)
		err = hold_base(h, &keys, oflags, geom);
	if (!err && oflags & UMMAP_O_WRITE && (keys.version || keys.has_id))
		err = fail_with(geom, EROFS, "%s", "cannot write to a version: versions do not "
				"change. Try without version= and id=, to make a new version");
	if (!err && oflags & UMMAP_O_WRITE)
		err = check_access(h, geom);
	if (!err && umobject_draft_begin(h->base, &h->shape, &h->draft) < 0)
		err = fail_object(geom);
	if (err) {
		object_close(h);
		return err;
	}
	geom->size = h->size;
	geom->align = 1;
	geom->optimal = 1 << 20;
	if (oflags & UMMAP_O_WRITE)
		geom->caps = UMMAP_CAP_WRITE | (h->can_grow ? UMMAP_CAP_GROW : 0);
	*handle = h;
	return 0;
}

static int object_read(void *handle, void *buf, size_t len, uint64_t off)
{
	return result_of(umobject_draft_read(((struct handle *)handle)->draft, buf, len, off));
}

static int object_write(void *handle, const void *buf, size_t len, uint64_t off)
{
	struct handle *h = handle;

	if (off + len > h->size && h->can_grow)
		h->size = off + len;
	return result_of(umobject_draft_write(h->draft, buf, len, off));
}

static int object_resize(void *handle, uint64_t size)
{
	struct handle *h = handle;

	if (size == h->size)
		return 0;
	if (!h->can_grow || size < h->size)
		return -EINVAL;
	h->size = size;
	return 0;
}

/* ---- New versions ---- */

/* A positive errno value: the changes are kept, and the next flush repeats the failed one. */
static int object_flush(void *handle, uint64_t off, uint64_t len)
{
	struct handle *h = handle;
	umobject_version *made;
	umobject_put *put;
	int err;

	(void)off;
	(void)len;
	if (!umobject_draft_is_written(h->draft))
		return 0;
	if (h->can_grow) {
		h->shape.dims[0] = h->size;
		umobject_draft_reshape(h->draft, &h->shape);
	}
	if (begin_put(h, &put) < 0)
		return errno;
	if (umobject_draft_put(h->draft, put, 0, UINT64_MAX) < 0) {
		err = errno;
		umobject_abandon(put);
		return err;
	}
	if (umobject_commit_hold(put, UMOBJECT_SPARSE, &made) < 0)
		return errno;
	/* The next version is made from this one. */
	umobject_draft_rebase(h->draft, made);
	umobject_release(h->base);
	h->base = made;
	h->can_grow = false;
	return 0;
}

static int object_size(void *handle, uint64_t *size)
{
	*size = ((struct handle *)handle)->size;
	return 0;
}

__attribute__((visibility("default")))
const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "object",
	.keys = OBJECT_KEYS(KEY_NAME),
	.help = "an object of a container: CONTAINER/NAME",
	.open = object_open,
	.close = object_close,
	.read = object_read,
	.write = object_write,
	.flush = object_flush,
	.resize = object_resize,
	.size = object_size,
};
