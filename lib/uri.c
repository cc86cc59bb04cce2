/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses URIs. Knows no drivers; takes no lock. */
#include "uri.h"

#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int hex(char c)
{
	if (isdigit((unsigned char)c))
		return c - '0';
	return isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

/* In place. A '%' must be followed by two hex digits, and must not make a NUL. */
static int decode(char *s)
{
	char *out = s;

	while (*s) {
		if (*s != '%') {
			*out++ = *s++;
			continue;
		}
		if (hex(s[1]) < 0 || hex(s[2]) < 0 || (s[1] == '0' && s[2] == '0'))
			return fail(EINVAL, "a %% in a URI must be followed by two hex digits (%%25 is a %%)");
		*out++ = (char)(hex(s[1]) * 16 + hex(s[2]));
		s += 3;
	}
	*out = '\0';
	return 0;
}

static int parse_schemes(struct uri *u, char *s)
{
	for (char *next = s; next; s = next) {
		next = strchr(s, '+');
		if (next)
			*next++ = '\0';
		if (*s == '\0' || s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0')
			return fail(EINVAL, "\"%s\" is no driver's name: a URI is driver:path or filter+driver:path", s);
		if (u->layers == URI_LAYERS)
			return fail(EINVAL, "a URI may name at most %d drivers", URI_LAYERS);
		u->layer[u->layers].scheme = s;
		u->layer[u->layers].path = "";
		u->layer[u->layers].keys = u->keys[u->layers];
		u->layers++;
	}
	return 0;
}

static int add_key(struct uri *u, unsigned layer, const char *name, const char *value)
{
	struct ummap_uri *l = &u->layer[layer];

	for (unsigned i = 0; i < l->nkeys; i++) {
		if (strcmp(l->keys[i].name, name) == 0)
			return fail(EINVAL, "the key \"%s\" stands twice in the URI", name);
	}
	if (l->nkeys == URI_KEYS)
		return fail(EINVAL, "a URI may have at most %d keys for a driver", URI_KEYS);
	u->keys[layer][l->nkeys++] = (struct ummap_key){ name, value };
	return 0;
}

/* A key "scheme.name" is that filter's; any other is the driver's, which comes last. */
static int parse_key(struct uri *u, char *item)
{
	char *value = strchr(item, '='), *dot;
	unsigned layer = u->layers - 1;

	if (!value || value == item)
		return fail(EINVAL, "\"%s\" in a URI must be key=value", item);
	*value++ = '\0';
	if (decode(item) < 0 || decode(value) < 0)
		return -EINVAL;
	dot = strchr(item, '.');
	if (dot) {
		*dot = '\0';
		for (layer = 0; layer < u->layers && strcmp(u->layer[layer].scheme, item); layer++)
			;
		if (layer == u->layers)
			return fail(EINVAL, "the key \"%s.%s\" is for a driver \"%s\" that the URI does not name",
				    item, dot + 1, item);
		item = dot + 1;
	}
	return add_key(u, layer, item, value);
}

static int parse(struct uri *u)
{
	char *path = strchr(u->text, ':'), *query = NULL, *next;
	int err;

	if (path) {
		*path++ = '\0';
		query = strchr(path, '?');
		if (query)
			*query++ = '\0';
	}
	err = parse_schemes(u, u->text);
	if (!err && path)
		err = decode(path);
	if (err)
		return err;
	for (unsigned i = 0; path && i < u->layers; i++)
		u->layer[i].path = path;
	for (; query && *query && !err; query = next) {
		next = strchr(query, '&');
		if (next)
			*next++ = '\0';
		err = parse_key(u, query);
	}
	return err;
}

int uri_parse(const char *text, struct uri *u)
{
	int err;

	memset(u, 0, sizeof(*u));
	u->text = strdup(text);
	if (!u->text)
		return fail(ENOMEM, "no memory for a URI");
	err = parse(u);
	if (err)
		uri_free(u);
	return err;
}

int uri_default(struct uri *u, unsigned layer, const char *name, const char *value)
{
	for (unsigned i = 0; i < u->layer[layer].nkeys; i++) {
		if (strcmp(u->keys[layer][i].name, name) == 0)
			return 0;
	}
	return add_key(u, layer, name, value);
}

void uri_free(struct uri *u)
{
	free(u->text);
	u->text = NULL;
}
