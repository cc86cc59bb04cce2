/* SPDX-License-Identifier: BSD-3-Clause */
/* UUIDs of versions, and how names and they become names of files. */
#ifndef OBJECT_ID_H
#define OBJECT_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <ummap-object.h>

#define ID_TEXT 37    /* of 36 hexadecimal digits and hyphens, with the zero behind */
#define NAME_TEXT 240 /* bytes of an escaped name, with the zero behind */

/* A random one (RFC 4122, version 4). */
int id_make(struct umobject_id *id);
bool id_same(const struct umobject_id *a, const struct umobject_id *b);
void id_text(const struct umobject_id *id, char text[static ID_TEXT]);
bool id_parse(const char *text, struct umobject_id *id);

/* -1 with a sentence: it is empty, or longer than names may be. */
int name_check(const char *name);
/*
 * A name as that of a file: bytes other than letters, digits, '-', '_' and '.' become %XX, a '.' in front too, so that none
 * leads out of its folder. What is too long then is '%%' and a hash of the name; the name itself is in the message.
 */
void name_escape(const char *name, char text[static NAME_TEXT]);
/* That hash, of a name of any length. */
void name_hash(const char *name, char text[static NAME_TEXT]);
/* The name; NULL: it is a hash, or no escaped name. For the caller to free. */
char *name_unescape(const char *text);

#endif
