/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads numbers of bytes. */
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int size_parse(const char *text, size_t *size)
{
	static const char units[] = "KMGT";
	unsigned long long n;
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit || end[1])
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (n > SIZE_MAX >> shift)
		return -EINVAL;
	*size = (size_t)n << shift;
	return 0;
}
