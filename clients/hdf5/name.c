/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HDF5 opens files under names that the program does not choose: of external links, and of sources
 * of virtual datasets. Therefore a URI that has a path must not stand for any other name. Several
 * names can stand for one file, and one name for several files, if the working directory changes.
 */
#include "hdf5/store.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <ummap.h>

#include "common/uri_encode.h"

/* Whether the name begins with a scheme: "wal+uring:/data/a". "./a:b" is a path. */
static bool is_uri(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-+");

	return n > 0 && name[n] == ':' && *name >= 'a' && *name <= 'z';
}

static const char *last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Whether the path of a URI ends in the last component of a name, encoded or not. */
static bool ends_in(const char *path, size_t len, const char *name, const char *encoded)
{
	const char *ends[] = { last_component(name), last_component(encoded) };

	for (unsigned i = 0; i < 2; i++) {
		size_t n = strlen(ends[i]);

		if (n <= len && memcmp(path + len - n, ends[i], n) == 0 &&
		    (n == len || strchr("/:", path[len - n - 1])))
			return true;
	}
	return false;
}

static char *join(const char *uri, size_t len, const char *path)
{
	size_t room = strlen(uri) + strlen(path) + 1;
	char *text = malloc(room);

	if (text)
		snprintf(text, room, "%.*s%s%s", (int)len, uri, path, uri + len);
	else
		umseterror(ENOMEM, "cannot open a file at '%s': no memory", uri);
	return text;
}

char *hdf5_name(const char *uri, const char *name)
{
	const char *colon = strchr(uri, ':');
	char encoded[4096];
	size_t len;

	if (is_uri(name))
		return join(name, strlen(name), "");
	if (!colon || uri_encode(encoded, sizeof(encoded), name) + 4 > sizeof(encoded)) {
		umseterror(EINVAL, "cannot open '%.200s' at '%.200s': %s", name, uri,
			   colon ? "the name is too long" : "it is no URI. Try \"wal+posix:\"");
		return NULL;
	}
	len = strcspn(colon + 1, "?");
	if (len == 0)
		return join(uri, (size_t)(colon + 1 - uri), encoded);
	if (ends_in(colon + 1, len, name, encoded))
		return join(uri, strlen(uri), "");
	umseterror(EINVAL, "cannot open '%.200s': the URI '%.200s' has the path of another file. "
		   "Try a URI without a path, to which the driver adds the name", name, uri);
	return NULL;
}

/* ---- Files of URIs ---- */

static const char *keys_of(const char *uri)
{
	return uri + strcspn(uri, "?");
}

static void decode_path(char *to, size_t room, const char *uri)
{
	const char *from = uri + strcspn(uri, ":"), *end = keys_of(uri);
	unsigned byte;

	for (from += *from == ':'; from < end && room > 1; from++, room--) {
		if (*from == '%' && sscanf(from + 1, "%2x", &byte) == 1) {
			*to++ = (char)byte;
			from += 2;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

struct hdf5_file_id hdf5_find_file(const char *uri)
{
	char path[4096];
	struct stat st;

	decode_path(path, sizeof(path), uri);
	if (stat(path, &st) == -1 || !S_ISREG(st.st_mode))
		return (struct hdf5_file_id){ 0 };
	return (struct hdf5_file_id){ st.st_dev, st.st_ino };
}

bool hdf5_is_same_way(const char *uri, const char *other)
{
	size_t n = strcspn(uri, ":");

	return strncmp(uri, other, n + 1) == 0 && strcmp(keys_of(uri), keys_of(other)) == 0;
}
