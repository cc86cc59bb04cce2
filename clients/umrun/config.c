/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/config.h"

#include "common/fd_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MIN ((size_t)1 << 20)
#define DEFAULT_HEAP_MIN ((size_t)64 << 10)
#define DEFAULT_SEGMENT ((size_t)256 << 10)

struct config config = { .min = DEFAULT_MIN,
			 .heap_min = DEFAULT_HEAP_MIN,
			 .segment = DEFAULT_SEGMENT };

static void read_size(void *field, const char *value)
{
	*(size_t *)field = strtoull(value, NULL, 10);
}

/* Copies the value: programs overwrite their environment, for example to show another title. */
static void read_text(void *field, const char *value)
{
	*(const char **)field = strdup(value);
}

static void read_flag(void *field, const char *value)
{
	(void)value;
	*(bool *)field = true;
}

/* Engines other than uffd do not see the kernel's accesses: memory for calls is pinned. */
static void read_engine(void *field, const char *value)
{
	*(bool *)field = strcmp(value, "uffd") != 0 && strcmp(value, "auto") != 0;
}

static const struct {
	const char *name;
	void (*read)(void *field, const char *value);
	size_t field;
} variables[] = {
#define VARIABLE(name, read, field, type, default, meaning) \
	{ name, read, offsetof(struct config, field) },
#include "umrun/variables.def"
#undef VARIABLE
};

/* Reads the variables once, whichever part of the library starts first. */
void config_read(void)
{
	static bool has_read;

	if (has_read)
		return;
	has_read = true;
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
		const char *value = secure_getenv(variables[i].name);

		if (value)
			variables[i].read((char *)&config + variables[i].field, value);
	}
}

bool config_uri(char *to, size_t room, const char *driver, int fd, bool same)
{
	const char *keys = driver + strcspn(driver, "?");
	char key[24] = "";
	int len;

	if (same)
		snprintf(key, sizeof(key), "%sfd=%d", *keys ? "&" : "?", fd);
	/* Both "trace+posix:?keys" and "trace+posix?keys" are accepted. */
	len = snprintf(to, room, "%.*s:" FD_FOLDER "%d%s%s", (int)strcspn(driver, ":?"), driver,
		       fd, keys, key);
	if (len < (int)room)
		return true;
	errno = ENAMETOOLONG;
	return false;
}
