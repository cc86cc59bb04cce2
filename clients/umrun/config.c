/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_DEFAULT ((size_t)1 << 20)
#define HEAP_MIN_DEFAULT ((size_t)64 << 10)
#define SEGMENT_DEFAULT ((size_t)256 << 10)

struct config config;

static size_t size_of(const char *name, size_t otherwise)
{
	const char *value = secure_getenv(name);

	return value ? strtoull(value, NULL, 10) : otherwise;
}

/* Programs overwrite what they were started with, to show another title. */
static const char *text_of(const char *name)
{
	const char *value = secure_getenv(name);

	return value ? strdup(value) : NULL;
}

/* Once, whichever part of the library starts first. */
void config_read(void)
{
	static bool has_read;
	const char *engine;

	if (has_read)
		return;
	has_read = true;
	config.min = size_of("UMRUN_MIN", MIN_DEFAULT);
	config.only = text_of("UMRUN_ONLY");
	config.driver = text_of("UMRUN_DRIVER");
	config.policy = text_of("UMRUN_POLICY");
	config.heap = text_of("UMRUN_HEAP");
	config.heap_min = size_of("UMRUN_HEAP_MIN", HEAP_MIN_DEFAULT);
	config.segment = size_of("UMRUN_SEGMENT", SEGMENT_DEFAULT);
	config.exclusive = secure_getenv("UMRUN_EXCLUSIVE") != NULL;
	config.quiet = secure_getenv("UMRUN_QUIET") != NULL;
	config.stats = secure_getenv("UMRUN_STATS") != NULL;
	engine = secure_getenv("UMRUN_ENGINE");
	config.pins = engine && strcmp(engine, "uffd") != 0 && strcmp(engine, "auto") != 0;
	config.verbose = secure_getenv("UMRUN_VERBOSE") != NULL;
}

bool config_uri(char *to, size_t room, const char *driver, int fd, bool same)
{
	const char *keys = driver + strcspn(driver, "?");
	char key[24] = "";
	int len;

	if (same)
		snprintf(key, sizeof(key), "%sfd=%d", *keys ? "&" : "?", fd);
	/* Both "trace+posix:?keys" and "trace+posix?keys" are accepted. */
	len = snprintf(to, room, "%.*s:/proc/self/fd/%d%s%s", (int)strcspn(driver, ":?"), driver, fd, keys, key);
	if (len < (int)room)
		return true;
	errno = ENAMETOOLONG;
	return false;
}
