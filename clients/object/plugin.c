/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which back end a container has: what begins as SCHEME: has the one in the file ummap-object-SCHEME.so, all else is a path. The file is
 * looked for where the library's drivers are: in the folders of UMMAP_DRIVER_PATH, and then in the installed one. A file stays loaded.
 */
#include "object/plugin.h"

#include "object/error.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEME_MAX 32

/* Bytes of the scheme; 0: it is a path. */
static size_t scheme_of(const char *where)
{
	size_t len = 0;

	while (len < SCHEME_MAX && isascii((unsigned char)where[len]) && islower((unsigned char)where[len]))
		len++;
	return where[len] == ':' ? len : 0;
}

static bool find_file(const char *scheme, const char *folders, char file[static PATH_MAX])
{
	while (folders && *folders) {
		size_t len = strcspn(folders, ":");

		if (*folders == '/' && len < PATH_MAX - 64) {
			snprintf(file, PATH_MAX, "%.*s/ummap-object-%s.so", (int)len, folders, scheme);
			if (access(file, F_OK) == 0)
				return true;
		}
		folders += len + (folders[len] == ':');
	}
	return false;
}

static const struct backend_ops *load(const char *scheme)
{
	const struct backend_ops *ops;
	char file[PATH_MAX];
	void *object;

	if (!find_file(scheme, secure_getenv("UMMAP_DRIVER_PATH"), file) && !find_file(scheme, UMMAP_PLUGIN_DIR, file)) {
		object_fail(EPROTONOSUPPORT, "cannot find the back end '%s': ummap-object-%s.so is "
			    "neither in a folder of UMMAP_DRIVER_PATH nor in '%s'", scheme, scheme,
			    UMMAP_PLUGIN_DIR);
		return NULL;
	}
	object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	ops = object ? dlsym(object, "umobject_backend") : NULL;
	if (!ops) {
		object_fail(ELIBACC, "cannot load the back end '%s': %s", scheme, dlerror());
		return NULL;
	}
	if (ops->abi != BACKEND_ABI || strcmp(ops->scheme, scheme) != 0) {
		object_fail(ELIBBAD, "cannot use '%.600s' as the back end '%s': it does not match "
			    "this release of the library", file, scheme);
		return NULL;
	}
	return ops;
}

const struct backend_ops *plugin_find(const char *where, const char **rest)
{
	size_t len = scheme_of(where);
	char scheme[SCHEME_MAX + 1];

	*rest = where;
	if (!len)
		return &backend_folders;
	memcpy(scheme, where, len);
	scheme[len] = '\0';
	*rest = where + len + 1;
	return load(scheme);
}
