/* SPDX-License-Identifier: BSD-3-Clause */
/* These functions run only while a store is opened. */
#include "keys.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int keys_refuse(struct ummap_geom *geom, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(geom->why, sizeof(geom->why), format, args);
	va_end(args);
	return -err;
}

int keys_refuse_value(struct ummap_geom *geom, const char *prefix, const struct ummap_key *key,
		      const struct key_type *types)
{
	while (types->name && strcmp(types->name, key->name) != 0)
		types++;
	return keys_refuse(geom, EINVAL, "%s%s is \"%.140s\": it must be %s", prefix, key->name,
			   key->value, types->name ? types->type : "left out");
}

bool keys_size(const char *text, uint64_t *size)
{
	return size_parse(text, size) == 0 && *size > 0 && *size <= INT64_MAX;
}

bool keys_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	return size_parse_count(text, value) == 0 && *value >= min && *value <= max;
}

int keys_word(const char *text, const char *const *words)
{
	for (int i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0)
			return i;
	}
	return -1;
}

bool keys_path(const char *text, char path[PATH_MAX])
{
	bool fits = *text && strlen(text) < PATH_MAX;

	strcpy(path, fits ? text : "");
	return fits;
}

bool keys_flag(const char *text, bool *value)
{
	*value = strcmp(text, "yes") == 0;
	return *value || strcmp(text, "no") == 0;
}
