/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of keys. Used while opening only. */
#include "keys.h"

#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>

int keys_refuse(struct ummap_geom *geom, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(geom->why, sizeof(geom->why), format, args);
	va_end(args);
	return -err;
}

bool keys_size(const char *text, uint64_t *size)
{
	return size_parse(text, size) == 0 && *size > 0 && *size <= INT64_MAX;
}

bool keys_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	return size_parse_count(text, value) == 0 && *value >= min && *value <= max;
}
