/* SPDX-License-Identifier: BSD-3-Clause */
/* A container and a name in one path. */
#include "object/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ummap-object.h>

/* What stands before it is the container, what stands behind is the name. */
static int open_at(const char *path, size_t len, const char *options, const struct umobject_attr *attr, umobject_container **container,
		   const char **name)
{
	char *where;
	int result, error;

	if (asprintf(&where, "%.*s%s", (int)len, path, options ? options : "") < 0)
		return object_fail(ENOMEM, "cannot open the object '%.200s': no memory", path);
	result = umobject_open(where, attr, container);
	error = errno;
	free(where);
	errno = error;
	*name = path + len + (path[len] == '/');
	return result;
}

/* As rados:POOL/CONTAINER/NAME. 0: it is a path. */
static size_t scheme_length(const char *path)
{
	size_t len = strspn(path, "abcdefghijklmnopqrstuvwxyz");

	return len && path[len] == ':' ? len + 1 : 0;
}

/* A name may have more bytes between two slashes than a folder's can have, and more of them than a path. */
static bool is_no_container(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG;
}

int umobject_open_path(const char *path, const char *options, const struct umobject_attr *attr, umobject_container **container,
		       const char **name)
{
	size_t len = strlen(path), scheme = scheme_length(path);
	int result = -1;

	if (scheme) {
		size_t pool = scheme + strcspn(path + scheme, "/");

		/* Behind a scheme, the container has one slash in it. */
		len = path[pool] ? pool + 1 + strcspn(path + pool + 1, "/") : pool;
		return open_at(path, len, options, attr, container, name);
	}
	if (options && *options)
		return object_fail(EINVAL, "cannot use the options '%.100s' with '%.200s': conf, "
				   "user, timeout and lease are only for containers in RADOS",
				   options, path);
	errno = ENOENT;
	for (len++; len > 1 && result < 0 && is_no_container(errno); len--) {
		if (path[len - 1] == '/' || !path[len - 1])
			result = open_at(path, len - 1, options, attr, container, name);
		else
			errno = ENOENT;
	}
	if (result < 0 && is_no_container(errno))
		return object_fail(ENOENT, "cannot open the object '%.100s': no container is in "
				   "this path. Try \"umobject create\"", path);
	return result;
}
