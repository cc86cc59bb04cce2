/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/config.h"

#include <stdlib.h>

#define MIN_DEFAULT ((size_t)1 << 20)

struct config config;

void config_read(void)
{
	const char *min = secure_getenv("UMRUN_MIN");

	config.min = min ? strtoull(min, NULL, 10) : MIN_DEFAULT;
	config.only = secure_getenv("UMRUN_ONLY");
	config.driver = secure_getenv("UMRUN_DRIVER");
	config.policy = secure_getenv("UMRUN_POLICY");
	config.stats = secure_getenv("UMRUN_STATS") != NULL;
	config.verbose = secure_getenv("UMRUN_VERBOSE") != NULL;
}
