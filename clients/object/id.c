/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/id.h"

#include "object/error.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

int id_make(struct umobject_id *id)
{
	if (getrandom(id->bytes, sizeof(id->bytes), 0) != sizeof(id->bytes))
		return object_fail(errno, "cannot make a UUID: no random numbers: %m");
	id->bytes[6] = (uint8_t)((id->bytes[6] & 0x0f) | 0x40);
	id->bytes[8] = (uint8_t)((id->bytes[8] & 0x3f) | 0x80);
	return 0;
}

static bool is_after_hyphen(unsigned byte)
{
	return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void id_text(const struct umobject_id *id, char text[static ID_TEXT])
{
	unsigned i;

	for (i = 0; i < sizeof(id->bytes); i++)
		text += sprintf(text, "%s%02x", is_after_hyphen(i) ? "-" : "", id->bytes[i]);
}

static int digit_value(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *id_parse(const char *text, struct umobject_id *id)
{
	unsigned i;

	for (i = 0; i < sizeof(id->bytes); i++) {
		if (is_after_hyphen(i) && *text++ != '-')
			return NULL;
		if (digit_value(text[0]) < 0 || digit_value(text[1]) < 0)
			return NULL;
		id->bytes[i] = (uint8_t)(digit_value(text[0]) << 4 | digit_value(text[1]));
		text += 2;
	}
	return text;
}

int name_check(const char *name)
{
	if (!name || !*name)
		return object_fail(EINVAL, "cannot use the name: it is empty or NULL");
	if (strlen(name) > UMOBJECT_NAME_MAX)
		return object_fail(ENAMETOOLONG, "cannot use the name '%.40s...' of %zu bytes: at "
				   "most %d are possible", name, strlen(name), UMOBJECT_NAME_MAX);
	return 0;
}

static bool is_plain(const char *name, const char *at)
{
	return isascii((unsigned char)*at) && (isalnum((unsigned char)*at) || *at == '-' ||
						 *at == '_' || (*at == '.' && at > name));
}

void name_escape(const char *name, char text[static NAME_TEXT])
{
	size_t n = 0;
	const char *c;

	for (c = name; *c && n + 4 < NAME_TEXT; c++)
		n += (size_t)sprintf(text + n, is_plain(name, c) ? "%c" : "%%%02x",
				     (unsigned char)*c);
	if (*c)
		name_hash(name, text);
}

void name_hash(const char *name, char text[static NAME_TEXT])
{
	XXH128_hash_t hash = XXH3_128bits(name, strlen(name));

	sprintf(text, "%%%%%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
}

char *name_unescape(const char *text)
{
	char *name = malloc(strlen(text) + 1), *to = name;
	const char *from = text;

	if (!name || strncmp(text, "%%", 2) == 0)
		goto none;
	while (*from) {
		if (*from != '%') {
			*to++ = *from++;
		} else if (digit_value(from[1]) >= 0 && digit_value(from[2]) >= 0) {
			*to++ = (char)(digit_value(from[1]) << 4 | digit_value(from[2]));
			from += 3;
		} else {
			goto none;
		}
	}
	*to = '\0';
	return name;
none:
	free(name);
	return NULL;
}
