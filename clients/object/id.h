/* SPDX-License-Identifier: BSD-3-Clause */
/* UUIDs of versions, and names of objects as names of files. */
#ifndef OBJECT_ID_H
#define OBJECT_ID_H

#include <stdbool.h>
#include <string.h>
#include <ummap-object.h>

#define ID_TEXT 37    /* bytes of a UUID as text: 36 hexadecimal digits and hyphens, and a zero */
#define NAME_TEXT 240 /* bytes of an escaped name with its zero, at most */

/* Makes a random id (RFC 4122, version 4). */
int id_make(struct umobject_id *id);
void id_text(const struct umobject_id *id, char text[static ID_TEXT]);
/* Parses the id at the beginning of a text. Returns the text behind it, or NULL. */
const char *id_parse(const char *text, struct umobject_id *id);

static inline bool id_same(const struct umobject_id *a, const struct umobject_id *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Refuses names that are empty or longer than UMOBJECT_NAME_MAX. */
int name_check(const char *name);
/*
 * Makes a name the name of a file: %XX replaces bytes other than letters, digits, '-', '_' and '.',
 * and a '.' in front, so that no name leads out of its folder. A name that is too long becomes '%%'
 * and its hash. The name itself is in the record of its versions.
 */
void name_escape(const char *name, char text[static NAME_TEXT]);
/* '%%' and the hash, for a name of any length. */
void name_hash(const char *name, char text[static NAME_TEXT]);
/* The name, for the caller to free; NULL: the text is a hash, or not an escaped name. */
char *name_unescape(const char *text);

#endif
