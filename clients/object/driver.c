/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver `object`: an object's bytes as a store. What is written is a draft until it is flushed: then each chunk that was
 * written is put, and a new version committed, which has all other chunks of the old one. So a flush happens as a whole or not at all,
 * and one that fails can be tried again. The library takes turns on a handle.
 */
#include "common/size.h"
#include "object/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ummap-driver.h>
#include <ummap-object.h>

struct handle {
	umobject_container *container;
	char *name;
	umobject_version *base;        /* NULL: there is no object of that name yet */
	struct umobject_shape shape;
	uint64_t size;                 /* 0: not known yet */
	umobject_draft *draft;         /* what was written since */
	bool may_grow;                 /* a new one whose shape nobody has given: bytes */
};

static const struct {
	const char *name;
	enum umobject_type type;
} types[] = {
	{ "int8", UMOBJECT_INT8 }, { "uint8", UMOBJECT_UINT8 }, { "int16", UMOBJECT_INT16 }, { "uint16", UMOBJECT_UINT16 },
	{ "int32", UMOBJECT_INT32 }, { "uint32", UMOBJECT_UINT32 }, { "int64", UMOBJECT_INT64 }, { "uint64", UMOBJECT_UINT64 },
	{ "float", UMOBJECT_FLOAT }, { "double", UMOBJECT_DOUBLE }, { "ldouble", UMOBJECT_LDOUBLE },
};

/* ---- Opening ---- */

struct wish {
	char container[1200];          /* keys that are the container's: "?conf=..." */
	uint64_t version;
	struct umobject_id id;
	bool by_id;
	struct umobject_shape shape;
	unsigned chunk_rank;
};

static int say(struct ummap_geom *geom, int error, const char *format, const char *what)
{
	snprintf(geom->why, sizeof(geom->why), format, what);
	return -error;
}

/* The library's own sentence. */
static int told(struct ummap_geom *geom)
{
	int error = errno ? errno : EIO;

	snprintf(geom->why, sizeof(geom->why), "%s", umobject_errormsg());
	return -error;
}

static bool parse_id(const char *text, struct umobject_id *id)
{
	size_t i, n = 0;

	for (i = 0; text[i] && n < 32; i++) {
		const char *digits = "0123456789abcdef", *at;

		if (text[i] == '-')
			continue;
		at = strchr(digits, text[i]);
		if (!at)
			return false;
		id->bytes[n / 2] = (uint8_t)(n % 2 ? id->bytes[n / 2] | (at - digits) : (at - digits) << 4);
		n++;
	}
	return n == 32 && !text[i];
}

static bool parse_type(const char *text, struct wish *w)
{
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(*types); i++) {
		if (strcmp(types[i].name, text) == 0) {
			w->shape.type = types[i].type;
			return true;
		}
	}
	return false;
}

/* Adds a key that belongs to the container: "?conf=...". */
static int pass_key(const struct ummap_key *k, struct wish *w, struct ummap_geom *geom)
{
	size_t len = strlen(w->container);
	int n = snprintf(w->container + len, sizeof(w->container) - len, "%c%s=%s", len ? '&' : '?', k->name, k->value);

	return n < 0 || (size_t)n >= sizeof(w->container) - len ? say(geom, ENAMETOOLONG, "cannot "
			"use the key '%s': its value is too long", k->name) : 0;
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
	snprintf(geom->why, sizeof(geom->why), "cannot use %s='%.40s': it must be %s", k->name, k->value,
		 key_types[i].type);
	return -EINVAL;
}

static bool parse_value(const struct ummap_key *k, struct wish *w)
{
	if (strcmp(k->name, "version") == 0)
		return size_parse_count(k->value, &w->version) == 0 && w->version > 0;
	if (strcmp(k->name, "id") == 0)
		return w->by_id = parse_id(k->value, &w->id);
	if (strcmp(k->name, "type") == 0)
		return parse_type(k->value, w);
	if (strcmp(k->name, "dims") == 0)
		return (w->shape.rank = size_parse_dims(k->value, w->shape.dims, UMOBJECT_RANK_MAX)) > 0;
	return (w->chunk_rank = size_parse_dims(k->value, w->shape.chunk, UMOBJECT_RANK_MAX)) > 0;
}

static int parse_key(const struct ummap_key *k, struct wish *w, struct ummap_geom *geom)
{
	if (strcmp(k->name, "conf") == 0 || strcmp(k->name, "user") == 0 || strcmp(k->name, "timeout") == 0 || strcmp(k->name, "lease") == 0)
		return pass_key(k, w, geom);
	return parse_value(k, w) ? 0 : refuse_value(k, geom);
}

static int parse_keys(const struct ummap_uri *uri, struct wish *w, struct ummap_geom *geom)
{
	unsigned i;

	for (i = 0; i < uri->nkeys; i++) {
		int err = parse_key(&uri->keys[i], w, geom);

		if (err)
			return err;
	}
	if (w->shape.rank && !w->shape.type)
		w->shape.type = UMOBJECT_UINT8;
	if (w->chunk_rank && w->shape.rank && w->chunk_rank != w->shape.rank)
		return say(geom, EINVAL, "%s", "cannot use dims and chunk: they must have the same "
			   "number of numbers");
	if (!w->shape.rank && (w->shape.type || w->chunk_rank > 1))
		return say(geom, EINVAL, "%s", "cannot use type and chunk without dims. Try dims=, "
			   "as 1000x200");
	return 0;
}

static int open_container(struct handle *h, const char *path, bool write, const struct wish *w, struct ummap_geom *geom)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	const char *name;

	attr.flags = write ? 0 : UMOBJECT_READ_ONLY;
	if (umobject_open_path(path, w->container, &attr, &h->container, &name) < 0)
		return told(geom);
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

static uint64_t bytes_of(const struct umobject_shape *shape)
{
	uint64_t bytes = umobject_type_size(shape->type);
	unsigned d;

	for (d = 0; d < shape->rank; d++)
		bytes *= shape->dims[d];
	return bytes;
}

/* Bytes, in chunks of a MiB, unless the URI says otherwise. */
static int take_wish(struct handle *h, const struct wish *w, struct ummap_geom *geom)
{
	uint64_t chunk = w->shape.chunk[0] ? w->shape.chunk[0] : 1 << 20;

	h->shape = w->shape;
	if (!h->shape.rank) {
		h->may_grow = true;
		h->shape = (struct umobject_shape){ .type = UMOBJECT_UINT8, .rank = 1, .chunk = { chunk } };
		return 0;
	}
	if (!umobject_chunks(&h->shape))
		return told(geom);
	h->size = bytes_of(&h->shape);
	return 0;
}

static int hold_base(struct handle *h, const struct wish *w, int oflags, struct ummap_geom *geom)
{
	int result = w->by_id ? umobject_hold_id(h->container, &w->id, &h->base) :
		umobject_hold(h->container, h->name, w->version, &h->base);

	if (result == 0)
		return take_shape(h, h->base);
	h->base = NULL;
	if (errno == ENOENT && oflags & UMMAP_O_CREATE && !w->by_id && !w->version)
		return take_wish(h, w, geom);
	return told(geom);
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

/* Who may not make a version hears it now, and not when there is something to lose. All else may be better by then. */
static int may_put(const struct handle *h, struct ummap_geom *geom)
{
	struct umobject_shape shape = h->shape;
	umobject_put *put;

	if (h->may_grow)
		shape.dims[0] = 1;
	if ((h->base ? umobject_begin_from(h->base, &put, NULL) : umobject_begin(h->container, h->name, &shape, &put, NULL)) < 0)
		return errno == EACCES || errno == EPERM || errno == EROFS ? told(geom) : 0;
	umobject_abandon(put);
	return 0;
}

static int object_open(const struct ummap_uri *uri, int oflags, void **handle, struct ummap_geom *geom)
{
	struct handle *h = calloc(1, sizeof(*h));
	struct wish wish = { 0 };
	int err;

	if (!h)
		return -ENOMEM;
	err = parse_keys(uri, &wish, geom);
	if (!err)
		err = open_container(h, uri->path, oflags & UMMAP_O_WRITE, &wish, geom);
	if (!err)
		err = hold_base(h, &wish, oflags, geom);
	if (!err && oflags & UMMAP_O_WRITE && (wish.version || wish.by_id))
		err = say(geom, EROFS, "%s", "cannot write to a version: versions do not change. "
			  "Try without version= and id=, to make a new version");
	if (!err && oflags & UMMAP_O_WRITE)
		err = may_put(h, geom);
	if (!err && umobject_draft_begin(h->base, &h->shape, &h->draft) < 0)
		err = told(geom);
	if (err) {
		object_close(h);
		return err;
	}
	geom->size = h->size;
	geom->align = 1;
	geom->optimal = 1 << 20;
	geom->caps = oflags & UMMAP_O_WRITE ? UMMAP_CAP_WRITE | (h->may_grow ? UMMAP_CAP_GROW : 0) : 0;
	*handle = h;
	return 0;
}

static int result_of(int result)
{
	return result < 0 ? -errno : 0;
}

static int object_read(void *handle, void *buf, size_t len, uint64_t off)
{
	return result_of(umobject_draft_read(((struct handle *)handle)->draft, buf, len, off));
}

static int object_write(void *handle, const void *buf, size_t len, uint64_t off)
{
	struct handle *h = handle;

	if (off + len > h->size && h->may_grow)
		h->size = off + len;
	return result_of(umobject_draft_write(h->draft, buf, len, off));
}

static int object_resize(void *handle, uint64_t size)
{
	struct handle *h = handle;

	if (size == h->size)
		return 0;
	if (!h->may_grow || size < h->size)
		return -EINVAL;
	h->size = size;
	return 0;
}

/* ---- A new version ---- */

static int begin(struct handle *h, umobject_put **put)
{
	if (h->may_grow) {
		h->shape.dims[0] = h->size;
		umobject_draft_reshape(h->draft, &h->shape);
	}
	return result_of(h->base ? umobject_begin_from(h->base, put, NULL) : umobject_begin(h->container, h->name, &h->shape, put, NULL));
}

/* The next version is made from this one. */
static void rebase(struct handle *h, umobject_version *made)
{
	umobject_draft_rebase(h->draft, made);
	umobject_release(h->base);
	h->base = made;
	h->may_grow = false;
}

/* Positive: all is there still, and the next flush tries again. */
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
	err = begin(h, &put);
	if (err)
		return -err;
	if (umobject_draft_put(h->draft, put, 0, UINT64_MAX) < 0) {
		err = errno;
		umobject_abandon(put);
		return err;
	}
	if (umobject_commit_hold(put, UMOBJECT_SPARSE, &made) < 0)
		return errno;
	rebase(h, made);
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
