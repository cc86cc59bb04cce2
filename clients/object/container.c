/* SPDX-License-Identifier: BSD-3-Clause */
/* Containers: opening them, and their names. */
#include "object/container.h"

#include "object/error.h"
#include "object/id.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int check_attr(const struct umobject_attr *attr)
{
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
	for (unsigned i = 0; i < attr->ndevices; i++)
		if (!attr->devices[i] || !*attr->devices[i])
			return object_fail(EINVAL, "cannot use attr.devices[%u]: it is NULL or "
					   "empty. Try the path of a folder", i);
	return 0;
}

/* The description of a new container. */
static struct bytes describe(const struct umobject_attr *attr)
{
	static const char *const inside[] = { "data" };
	struct description d = { .keep = attr->keep ? attr->keep : 1 };

	d.devices = (char **)(uintptr_t)(attr->ndevices ? attr->devices : inside);
	d.ndevices = attr->ndevices ? attr->ndevices : 1;
	return description_pack(&d);
}

/* A quarter of the descriptors that the process may open. */
static unsigned limit_open_chunks(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > UINT_MAX)
		return UINT_MAX;
	return (unsigned)limit.rlim_cur / 4;
}

static int open_backend(struct umobject_container *c, const struct backend_ops *ops,
			const char *where, const struct umobject_attr *attr)
{
	bool create = attr->flags & UMOBJECT_CREATE;
	struct bytes wanted = { NULL, 0 }, bytes;
	struct description d;
	int result;

	if (create && !(wanted = describe(attr)).data)
		return -1;
	result = ops->open(where, create ? &wanted : NULL, &bytes, &c->b);
	free(wanted.data);
	if (result < 0)
		return -1;
	result = description_unpack(&bytes, where, &d);
	free(bytes.data);
	if (result < 0) {
		ops->close(c->b);
		return -1;
	}
	c->keep = d.keep;
	c->max_open_chunks = limit_open_chunks();
	c->read_only = attr->flags & UMOBJECT_READ_ONLY;
	description_free(&d);
	return 0;
}

int umobject_open(const char *where, const struct umobject_attr *attr,
		  umobject_container **container)
{
	struct umobject_attr defaults = UMOBJECT_ATTR_INIT;
	const struct backend_ops *ops;
	struct umobject_container *c;
	const char *rest;

	if (!where || !*where || !container)
		return object_fail(EINVAL, "cannot open a container: the name is empty, or an "
				   "argument is NULL. Try the path of a folder, or "
				   "rados:POOL/NAME, or s3:BUCKET/PREFIX");
	attr = attr ? attr : &defaults;
	if (check_attr(attr) < 0 || !(ops = find_backend(where, &rest)))
		return -1;
	if (ops->scheme && attr->ndevices)
		return object_fail(EINVAL, "cannot use attr.devices with '%s:': they are only for "
				   "containers in folders. Try without them", ops->scheme);
	c = calloc(1, sizeof(*c));
	if (!c || !(c->where = strdup(where))) {
		free(c);
		return fail_no_memory("open the container");
	}
	if (open_backend(c, ops, rest, attr) < 0) {
		free(c->where);
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
	free(c->where);
	free(c);
}

int container_check_writable(const struct umobject_container *c)
{
	return c->read_only ? object_fail(EROFS, "cannot change the container '%s': it was opened "
					  "with UMOBJECT_READ_ONLY", c->where) : 0;
}

int container_lock(struct umobject_container *c, const char *name, void **lock)
{
	*lock = NULL;
	return c->b->ops->names->lock ? c->b->ops->names->lock(c->b, name, lock) : 0;
}

void container_unlock(struct umobject_container *c, void *lock)
{
	int error = errno;

	if (lock)
		c->b->ops->names->unlock(c->b, lock);
	errno = error;
}

int umobject_list(umobject_container *c, int (*each)(void *arg, const char *name), void *arg)
{
	return c->b->ops->names->list(c->b, each, arg);
}

int umobject_versions(umobject_container *c, const char *name,
		      int (*each)(void *arg, uint64_t version), void *arg)
{
	return name_check(name) < 0 ? -1 : c->b->ops->names->list_versions(c->b, name, each, arg);
}

int umobject_delete(umobject_container *c, const char *name)
{
	void *lock;
	int result;

	if (name_check(name) < 0 || container_check_writable(c) < 0 ||
	    container_lock(c, name, &lock) < 0)
		return -1;
	result = c->b->ops->names->remove(c->b, name);
	container_unlock(c, lock);
	if (result < 0 && errno == ENOENT)
		return object_fail(ENOENT, "cannot find the object '%s' in '%s'. Try \"umobject "
				   "ls\"", name, c->where);
	return result;
}
