/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parses URIs. The text is split before it is decoded, so that the bytes for which a '%' or a
 * variable stands never change the structure. Independent of drivers; takes no lock.
 */
#include "io/uri.h"

#include "base/log.h"
#include "io/vars.h"

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

/* Decodes one character of s, such as "%41". Returns the text after it; or NULL with a message,
 * because two hex digits must follow a '%', and the character must not be NUL. */
static const char *decode_char(const char *s, char *c)
{
	if (*s != '%') {
		*c = *s;
		return s + 1;
	}
	if (hex(s[1]) < 0 || hex(s[2]) < 0 || (s[1] == '0' && s[2] == '0')) {
		fail(EINVAL, "cannot read '%.40s' in a URI: %% must be followed by two hex digits "
		     "other than 00. Try %%25 for a %%", s);
		return NULL;
	}
	*c = (char)(hex(s[1]) * 16 + hex(s[2]));
	return s + 3;
}

/* Decodes a text in place. */
static int decode(char *text)
{
	const char *s = text;
	char *out = text;

	while (s && *s)
		s = decode_char(s, out++);
	*out = '\0';
	return s ? 0 : -EINVAL;
}

/* Appends the value of the variable at s, a "{name}", to *out. Returns the text after the variable,
 * or NULL with a message. */
static const char *put_variable(const char *s, char **out)
{
	const char *name = s + 1;
	size_t len = vars_name_len(name);
	int n;

	if (len == 0 || name[len] != '}') {
		fail(EINVAL, "cannot read '%.40s' in a URI: { must begin a variable of letters, "
		     "digits and '_', such as {rank}. Try %%7B for a {", s);
		return NULL;
	}
	n = vars_get(name, len, *out);
	if (n < 0)
		return NULL;
	*out += n;
	return name + len + 1;
}

/* Replaces variables, whose values are taken as they are. *text becomes the result, in u->room. */
static int expand(struct uri *u, const char **text)
{
	const char *s = *text;

	*text = u->room_end;
	while (s && *s)
		s = *s == '{' ? put_variable(s, &u->room_end) : decode_char(s, u->room_end++);
	*u->room_end++ = '\0';
	return s ? 0 : -EINVAL;
}

/* Allocates room for the expanded text: each variable makes it longer by less than the longest
 * value. */
static int make_room(struct uri *u)
{
	size_t variables = 0;

	for (const char *s = u->text; (s = strchr(s, '{')); s++)
		variables++;
	if (variables > URI_VARIABLES)
		return fail(EINVAL, "cannot read the URI '%.200s': it has more than %d variables. "
			    "Try %%7B for a {", u->text, URI_VARIABLES);
	u->room = malloc(strlen(u->text) + 1 + variables * (VARS_VALUE_MAX + 1));
	if (!u->room)
		return fail(ENOMEM, "cannot read the URI '%.200s': no memory", u->text);
	u->room_end = u->room;
	return 0;
}

static int parse_schemes(struct uri *u, char *s)
{
	for (char *next = s; next; s = next) {
		next = strchr(s, '+');
		if (next)
			*next++ = '\0';
		if (*s == '\0' || s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0')
			return fail(EINVAL, "cannot read the URI: '%s' is not the name of a "
				    "driver. Try driver:path or filter+driver:path", s);
		if (u->layers == URI_LAYERS)
			return fail(EINVAL, "cannot read the URI: it names more than %d drivers",
				    URI_LAYERS);
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
			return fail(EINVAL, "cannot read the URI: it has the key '%s' twice", name);
	}
	if (l->nkeys == URI_KEYS)
		return fail(EINVAL, "cannot read the URI: it has more than %d keys for a driver",
			    URI_KEYS);
	u->keys[layer][l->nkeys++] = (struct ummap_key){ name, value };
	return 0;
}

/* A key "scheme.name" belongs to that filter; any other key belongs to the driver, which is the
 * last layer. */
static int parse_key(struct uri *u, char *item)
{
	char *equals = strchr(item, '='), *dot;
	const char *value;
	unsigned layer = u->layers - 1;

	if (!equals || equals == item)
		return fail(EINVAL, "cannot read '%s' in a URI: it must be key=value", item);
	*equals = '\0';
	value = equals + 1;
	if (decode(item) < 0 || expand(u, &value) < 0)
		return -EINVAL;
	dot = strchr(item, '.');
	if (dot) {
		*dot = '\0';
		for (layer = 0; layer < u->layers && strcmp(u->layer[layer].scheme, item); layer++)
			;
		if (layer == u->layers)
			return fail(EINVAL, "cannot use the key '%s.%s': the URI names no driver "
				    "'%s'", item, dot + 1, item);
		item = dot + 1;
	}
	return add_key(u, layer, item, value);
}

static int parse(struct uri *u)
{
	char *colon = strchr(u->text, ':'), *query = NULL, *next;
	const char *path = NULL;
	int err;

	if (colon) {
		*colon = '\0';
		path = colon + 1;
		query = strchr(colon + 1, '?');
		if (query)
			*query++ = '\0';
	}
	err = parse_schemes(u, u->text);
	if (!err && path)
		err = expand(u, &path);
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
		return fail(ENOMEM, "cannot read the URI '%.200s': no memory", text);
	err = make_room(u);
	if (!err)
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
	free(u->room);
	u->text = u->room = NULL;
}
