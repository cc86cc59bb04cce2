/* SPDX-License-Identifier: BSD-3-Clause */
/* Containers and their names: which back end has them, and what is there. */
#include "object/container.h"

#include "object/error.h"
#include "object/gc.h"
#include "object/id.h"
#include "object/plugin.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int check_attr(const struct umobject_attr *attr)
{
	unsigned i;

	if (attr->struct_size < sizeof(*attr))
		return object_fail(EINVAL, "cannot use attr.struct_size %zu: it must be at least "
				   "%zu. Try UMOBJECT_ATTR_INIT", attr->struct_size, sizeof(*attr));
	if (attr->flags & ~(UMOBJECT_CREATE | UMOBJECT_READ_ONLY))
		return object_fail(EINVAL, "cannot use attr.flags %#x: the only flags are "
				   "UMOBJECT_CREATE and UMOBJECT_READ_ONLY", attr->flags);
	if (attr->flags == (UMOBJECT_CREATE | UMOBJECT_READ_ONLY))
		return object_fail(EINVAL, "cannot use attr.flags: UMOBJECT_CREATE and "
				   "UMOBJECT_READ_ONLY exclude each other. Try one of them");
	if (attr->keep > KEEP_MAX)
		return object_fail(EINVAL, "cannot keep attr.keep = %u versions of a name: at most "
				   "%d are possible", attr->keep, KEEP_MAX);
	if (attr->ndevices > DEVICES_MAX || (attr->ndevices && !attr->devices))
		return object_fail(EINVAL, "cannot use attr.ndevices %u: attr.devices must name "
				   "that many folders, at most %d", attr->ndevices, DEVICES_MAX);
	for (i = 0; i < attr->ndevices; i++)
		if (!attr->devices[i] || !*attr->devices[i])
			return object_fail(EINVAL, "cannot use attr.devices[%u]: it is NULL or "
					   "empty. Try the path of a folder", i);
	return 0;
}

/* What a new container is to say of itself. */
static void *describe(const struct umobject_attr *attr, size_t *size)
{
	static const char *const inside[] = { "data" };
	struct description d = { .keep = attr->keep ? attr->keep : 1 };

	d.devices = (char **)(uintptr_t)(attr->ndevices ? attr->devices : inside);
	d.ndevices = attr->ndevices ? attr->ndevices : 1;
	return description_pack(&d, size);
}

/* A quarter of the descriptors that this process may have: others need some, too. */
static unsigned most_chunks(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > UINT_MAX)
		return UINT_MAX;
	return (unsigned)limit.rlim_cur / 4;
}

static int open_backend(struct umobject_container *c, const struct backend_ops *ops, const char *where, const struct umobject_attr *attr)
{
	void *wanted = NULL, *bytes;
	size_t wanted_size = 0, size;
	struct description d;
	int result;

	if (attr->flags & UMOBJECT_CREATE && !(wanted = describe(attr, &wanted_size)))
		return -1;
	result = ops->open(where, wanted, wanted_size, &bytes, &size, &c->b);
	free(wanted);
	if (result < 0)
		return -1;
	result = description_unpack(bytes, size, where, &d);
	free(bytes);
	if (result < 0) {
		ops->close(c->b);
		return -1;
	}
	c->keep = d.keep;
	c->most_chunks = most_chunks();
	c->read_only = attr->flags & UMOBJECT_READ_ONLY;
	description_free(&d);
	return 0;
}

int umobject_open(const char *where, const struct umobject_attr *attr, umobject_container **container)
{
	struct umobject_attr defaults = UMOBJECT_ATTR_INIT;
	const struct backend_ops *ops;
	struct umobject_container *c;
	const char *rest;

	if (!where || !*where || !container)
		return object_fail(EINVAL, "cannot open a container: the name is empty, or an "
				   "argument is NULL. Try the path of a folder, or "
				   "rados:POOL/NAME");
	attr = attr ? attr : &defaults;
	if (check_attr(attr) < 0)
		return -1;
	ops = plugin_find(where, &rest);
	if (!ops)
		return -1;
	if (ops->scheme && attr->ndevices)
		return object_fail(EINVAL, "cannot use attr.devices with '%s:': they are only for "
				   "containers in folders. Try without them", ops->scheme);
	c = calloc(1, sizeof(*c));
	if (!c)
		return object_fail(ENOMEM, "cannot open the container '%s': no memory", where);
	if (open_backend(c, ops, rest, attr) < 0) {
		free(c);
		return -1;
	}
	*container = c;
	return 0;
}

void umobject_close(umobject_container *c)
{
	if (!c)
		return;
	c->b->ops->close(c->b);
	free(c);
}

int umobject_list(umobject_container *c, int (*each)(void *arg, const char *name), void *arg)
{
	return c->b->ops->names(c->b, each, arg);
}

int umobject_versions(umobject_container *c, const char *name, int (*each)(void *arg, uint64_t version), void *arg)
{
	if (name_check(name) < 0)
		return -1;
	return c->b->ops->versions(c->b, name, each, arg);
}

int umobject_delete(umobject_container *c, const char *name)
{
	void *lock = NULL;
	int result, error;

	if (name_check(name) < 0)
		return -1;
	if (c->read_only)
		return object_fail(EROFS, "cannot change the container: it was opened with "
				   "UMOBJECT_READ_ONLY");
	if (c->b->ops->name_lock && c->b->ops->name_lock(c->b, name, &lock) < 0)
		return -1;
	result = c->b->ops->name_remove(c->b, name);
	error = errno;
	if (c->b->ops->name_unlock)
		c->b->ops->name_unlock(c->b, lock);
	errno = error;
	return result;
}

struct object *container_look(struct umobject_container *c, const char *name, uint64_t version, struct lease **lease)
{
	struct object *o = NULL;
	void *bytes;
	size_t size;

	if (c->b->ops->name_hold(c->b, name, version, lease, &bytes, &size) < 0)
		return NULL;
	o = object_unpack(bytes, size, name);
	free(bytes);
	if (!o)
		c->b->ops->release(c->b, *lease);
	return o;
}

/* A name that was deleted meanwhile needs nothing. */
static int settle_newest(struct umobject_container *c, const char *name)
{
	struct lease *lease;
	struct object *o = container_look(c, name, 0, &lease);
	int result;

	if (!o)
		return errno == ENOENT ? 0 : -1;
	/* A record of another object, in place of the name's own. */
	if (strcmp(o->name, name) != 0)
		result = object_fail(EBADMSG, "cannot read '%s': its record is damaged", name);
	else
		result = c->b->ops->settle(c->b, name, &o->id, o->version);
	object_free(o);
	c->b->ops->release(c->b, lease);
	return result;
}

/* A commit that was killed may have left versions that are no longer kept, or the view of another one. */
static int settle_name(void *arg, const char *name)
{
	struct umobject_container *c = arg;
	void *lock = NULL;
	int result, error;

	if (c->b->ops->name_lock(c->b, name, &lock) < 0)
		return -1;
	result = settle_newest(c, name);
	error = errno;
	c->b->ops->name_unlock(c->b, lock);
	if (result < 0 && error == EBADMSG)
		return object_fail(EBADMSG, "cannot tell which chunks are in use, because the record of "
				   "'%s' is damaged. Nothing was removed. Try \"umobject check "
				   "--repair\"", name);
	errno = error;
	return result;
}

int umobject_gc(umobject_container *c, struct umobject_garbage *removed)
{
	struct umobject_garbage counted = { sizeof(counted), 0, 0, 0 };
	int result;

	if (removed && removed->struct_size < sizeof(counted))
		return object_fail(EINVAL, "cannot use struct_size %zu: it must be at least %zu, "
				   "the size of struct umobject_garbage", removed->struct_size,
				   sizeof(counted));
	if (c->read_only)
		return object_fail(EROFS, "cannot change the container: it was opened with "
				   "UMOBJECT_READ_ONLY");
	if (c->b->ops->end_removals && c->b->ops->end_removals(c->b) < 0)
		return -1;
	if (c->b->ops->settle && c->b->ops->names(c->b, settle_name, c) < 0)
		return -1;
	if (container_check_names(c) < 0)
		return -1;
	result = gc_all(c->b, &counted);
	if (removed) {
		counted.struct_size = removed->struct_size;
		*removed = counted;
	}
	return result;
}
