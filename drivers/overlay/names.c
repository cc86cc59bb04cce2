/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of stores and of overlays: paths, and layers of URIs. */
#include "overlay.h"

#include "../keys.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void overlay_resolve(char real[PATH_MAX], const char *store)
{
	if (!realpath(store, real))
		snprintf(real, PATH_MAX, "%s", store);
}

int overlay_beside(char path[PATH_MAX], const char *store, const char *suffix)
{
	char real[PATH_MAX];

	overlay_resolve(real, store);
	return snprintf(path, PATH_MAX, "%s%s", real, suffix) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

bool overlay_is_beside(const char *path, const char *store, const char *suffix)
{
	struct stat own, found;
	char beside[PATH_MAX];

	return overlay_beside(beside, store, suffix) < 0 ||
	       (stat(path, &own) == 0 && stat(beside, &found) == 0 &&
		own.st_dev == found.st_dev && own.st_ino == found.st_ino);
}

void overlay_describe(struct store_facts *facts, const char *path, int fd, uint64_t size)
{
	struct stat st = { .st_mode = 0 };
	char copy[PATH_MAX];

	*facts = (struct store_facts){ .size = size };
	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(facts->name, sizeof(facts->name), "%.255s", basename(copy));
	if ((fd < 0 ? stat(path, &st) : fstat(fd, &st)) < 0 || !S_ISREG(st.st_mode))
		return;
	facts->id = st.st_ino;
	facts->seconds = (uint64_t)st.st_mtim.tv_sec;
	facts->nanoseconds = (uint64_t)st.st_mtim.tv_nsec;
}

void overlay_name_store(const struct ummap_uri *uri, char to[PATH_MAX])
{
	static const char descriptor[] = "/proc/self/fd/";
	char store[PATH_MAX - 2], real[PATH_MAX], way[BEHIND_WAY];
	bool is_descriptor = strncmp(uri->path, descriptor, strlen(descriptor)) == 0;

	behind_way(uri, way);
	behind_uri(uri, store, sizeof(store));
	overlay_resolve(real, uri->path);
	/* A descriptor of this process means nothing to the user's shell. */
	if (is_descriptor)
		snprintf(to, PATH_MAX, "%s", real);
	else if (strcmp(way, FILE_WAY) == 0 || !*uri->path || !*store)
		snprintf(to, PATH_MAX, "%s", uri->path);
	else
		snprintf(to, PATH_MAX, "'%s'", store);
}

/* ---- Layers of a URI ---- */

const char *overlay_find_key(const struct ummap_uri *uri, const char *name)
{
	for (unsigned i = 0; i < uri->nkeys; i++) {
		if (strcmp(uri->keys[i].name, name) == 0)
			return uri->keys[i].value;
	}
	return NULL;
}

static bool names_file(const struct overlay *o, const struct ummap_uri *uri, const char *suffix)
{
	const char *path = overlay_find_key(uri, "path");
	char beside[PATH_MAX];

	if (strcmp(uri->scheme, o->policy->scheme) != 0)
		return false;
	if (!path && (!*uri->path || overlay_beside(beside, uri->path, suffix) < 0))
		return false;
	return side_is(&o->file, path ? path : beside);
}

const struct ummap_uri *overlay_find_layer(const struct overlay *o, const struct ummap_uri *uri,
					   const char *suffix)
{
	while (uri && !names_file(o, uri, suffix))
		uri = uri->next_uri;
	return o->file.h ? uri : NULL;
}

bool overlay_has_layer(const struct overlay_policy *policy, const struct ummap_uri *uri)
{
	while (uri && strcmp(uri->scheme, policy->scheme) != 0)
		uri = uri->next_uri;
	return uri;
}
