/* SPDX-License-Identifier: BSD-3-Clause */
/* URIs like the user's, but of another path or with another key. */
#include "conform.h"

#include <stdio.h>
#include <string.h>

void uri_scheme(char *scheme, size_t size)
{
	snprintf(scheme, size, "%.*s", (int)strcspn(options.uri, "+:"), options.uri);
}

bool uri_is_filter(void)
{
	return options.uri[strcspn(options.uri, "+:")] == '+';
}

void uri_with_path(char *uri, const char *path)
{
	const char *keys = strchr(options.uri, '?');
	int len = snprintf(uri, URI_MAX, "%.*s:%s%s", (int)strcspn(options.uri, ":"), options.uri, path,
			   keys ? keys : "");

	expect(len < URI_MAX, "the URI becomes too long: choose a shorter path");
}

/* Copies the keys of the URI but `name`, each with a separator before it. */
static size_t other_keys(char *out, size_t room, const char *name)
{
	const char *key = strchr(options.uri, '?');
	size_t len = 0, name_len = strlen(name);

	out[0] = '\0';
	while (key && len < room) {
		const char *start = key + 1;
		size_t n = strcspn(start, "&");

		if (strncmp(start, name, name_len) != 0 || start[name_len] != '=')
			len += (size_t)snprintf(out + len, room - len, "%c%.*s", len ? '&' : '?', (int)n, start);
		key = start[n] ? start + n : NULL;
	}
	return len;
}

void uri_with_key(char *uri, const char *key, const char *value)
{
	char scheme[64], name[128], keys[URI_MAX];
	size_t len;

	uri_scheme(scheme, sizeof(scheme));
	snprintf(name, sizeof(name), "%s%s%s", uri_is_filter() ? scheme : "", uri_is_filter() ? "." : "", key);
	len = other_keys(keys, sizeof(keys), name);
	len = (size_t)snprintf(uri, URI_MAX, "%.*s%s%c%s=%s", (int)strcspn(options.uri, "?"), options.uri, keys,
			       len ? '&' : '?', name, value);
	expect(len < URI_MAX, "the URI becomes too long: choose a shorter path");
}
