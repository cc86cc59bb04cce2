/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/policy.h"

int parse_policy(const char *name)
{
	const char *const names[] = {
		[UMMAP_PTYPE_FIFO] = "fifo",     [UMMAP_PTYPE_LIFO] = "lifo",
		[UMMAP_PTYPE_PLRU] = "plru",     [UMMAP_PTYPE_PRND] = "prnd",
		[UMMAP_PTYPE_WIRO_F] = "wiro-f", [UMMAP_PTYPE_WIRO_L] = "wiro-l",
		[UMMAP_PTYPE_S3FIFO] = "s3fifo",
	};

	for (unsigned i = 1; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return (int)i;
	die("--policy: '%s' is none of fifo, lifo, plru, prnd, wiro-f, wiro-l, s3fifo", name);
}
