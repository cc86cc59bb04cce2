/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A back end other than folders is a file ummap-object-SCHEME.so, in the same folders as drivers:
 * those of UMMAP_DRIVER_PATH, and then the installed one. A loaded file stays loaded.
 */
#include "object/container.h"

#include "object/error.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEME_MAX 32

/* Bytes of the scheme without its colon; 0: the path is that of a folder. */
static size_t scheme_length(const char *path)
{
	size_t len = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789");

	return path[len] == ':' && len <= SCHEME_MAX ? len : 0;
}

static bool find_file(const char *scheme, const char *folders, char file[static PATH_MAX])
{
	while (folders && *folders) {
		size_t len = strcspn(folders, ":");

		if (*folders == '/' && len < PATH_MAX - 64) {
			snprintf(file, PATH_MAX, "%.*s/ummap-object-%s.so", (int)len, folders,
				 scheme);
			if (access(file, F_OK) == 0)
				return true;
		}
		folders += len + (folders[len] == ':');
	}
	return false;
}

static int load_backend(const char *scheme, const struct backend_ops **ops)
{
	char file[PATH_MAX];
	void *object;

	if (!find_file(scheme, secure_getenv("UMMAP_DRIVER_PATH"), file) &&
	    !find_file(scheme, UMMAP_PLUGIN_DIR, file))
		return object_fail(EPROTONOSUPPORT, "cannot find the back end '%s': "
				   "ummap-object-%s.so is neither in a folder of UMMAP_DRIVER_PATH "
				   "nor in '%s'", scheme, scheme, UMMAP_PLUGIN_DIR);
	object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	*ops = object ? dlsym(object, "umobject_backend") : NULL;
	if (!*ops)
		return object_fail(ELIBACC, "cannot load the back end '%s': %s", scheme, dlerror());
	if ((*ops)->abi != BACKEND_ABI || strcmp((*ops)->scheme, scheme) != 0)
		return object_fail(ELIBBAD, "cannot use '%.600s' as the back end '%s': it does not "
				   "match this release of the library", file, scheme);
	return 0;
}

const struct backend_ops *find_backend(const char *where, const char **rest)
{
	const struct backend_ops *ops = &backend_folders;
	size_t len = scheme_length(where);
	char scheme[SCHEME_MAX + 1];

	snprintf(scheme, sizeof(scheme), "%.*s", (int)len, where);
	*rest = len ? where + len + 1 : where;
	return len && load_backend(scheme, &ops) < 0 ? NULL : ops;
}

/* Opens the container whose path is the first `len` bytes. The name of the object follows them. */
static int open_prefix(const char *path, size_t len, const char *options,
		       const struct umobject_attr *attr, umobject_container **container,
		       const char **name)
{
	char *where;
	int result, error;

	if (asprintf(&where, "%.*s%s", (int)len, path, options ? options : "") < 0)
		return fail_no_memory("open the object");
	result = umobject_open(where, attr, container);
	error = errno;
	free(where);
	errno = error;
	*name = path + len + (path[len] == '/');
	return result;
}

/* Parts of a name may be longer than the names of folders, and the name longer than a path. */
static bool is_no_container(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG;
}

int umobject_open_path(const char *path, const char *options, const struct umobject_attr *attr,
		       umobject_container **container, const char **name)
{
	size_t len = strlen(path), slash;
	int result = -1;

	/* Behind a scheme, the container is POOL/CONTAINER. */
	if (scheme_length(path)) {
		slash = strcspn(path, "/");
		len = path[slash] ? slash + 1 + strcspn(path + slash + 1, "/") : slash;
		return open_prefix(path, len, options, attr, container, name);
	}
	if (options && *options)
		return object_fail(EINVAL, "cannot use the options '%.100s' with '%.200s': they "
				   "are only for containers in RADOS and S3",
				   options, path);
	errno = ENOENT;
	for (; len > 0 && result < 0 && is_no_container(errno); len--) {
		if (path[len] == '/' || !path[len])
			result = open_prefix(path, len, options, attr, container, name);
	}
	if (result < 0 && is_no_container(errno))
		return object_fail(ENOENT, "cannot open the object '%.100s': no container is in "
				   "this path. Try \"umobject create\"", path);
	return result;
}
