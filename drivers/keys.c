/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of keys. Used while opening only. */
#include "keys.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	static const char units[] = "KMGT";
	const char *unit = NULL;
	unsigned shift = 0;
	char *end;

	errno = 0;
	*size = strtoull(text, &end, 10);
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	}
	if (!isdigit((unsigned char)*text) || errno || (*end && (!unit || end[1])) ||
	    *size == 0 || *size > (uint64_t)INT64_MAX >> shift)
		return false;
	*size <<= shift;
	return true;
}

bool keys_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !*end && !errno && *value >= min && *value <= max;
}
