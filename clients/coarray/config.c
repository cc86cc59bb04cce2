/* SPDX-License-Identifier: BSD-3-Clause */
/* One table has all variables. An empty one counts as unset; a value is taken or refused, never bent. */
#include "coarray/config.h"

#include "base/size.h"
#include "window/hints.h"
#include "window/spelling.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGSIZE ((uint64_t)64 << 10)

static bool take_flag(void *field, const char *value)
{
	bool *flag = field;

	*flag = strcmp(value, "true") == 0;
	return *flag || strcmp(value, "false") == 0;
}

static bool take_text(void *field, const char *value)
{
	return snprintf(field, CONFIG_TEXT, "%s", value) < CONFIG_TEXT;
}

/* The manifest has it in a line. */
static bool take_folder(void *field, const char *value)
{
	struct stat st;
	char *path = stat(value, &st) == 0 && S_ISDIR(st.st_mode) ? realpath(value, NULL) : NULL;
	bool good = path && !strchr(path, '\n') && take_text(field, path);

	free(path);
	return good;
}

bool config_folder(char name[CONFIG_TEXT], const char *value)
{
	return take_folder(name, value);
}

static bool take_prefix(void *field, const char *value)
{
	return !strchr(value, '/') && take_text(field, value);
}

static bool take_bytes(void *field, const char *value)
{
	return size_parse(value, field) == 0;
}

static bool take_number(void *field, const char *value)
{
	return size_parse_count(value, field) == 0;
}

static bool take_segment(void *field, const char *value)
{
	uint64_t *bytes = field;

	return size_parse(value, bytes) == 0 && *bytes >= (uint64_t)sysconf(_SC_PAGESIZE) && !(*bytes & (*bytes - 1));
}

/* MPI-IO takes hints that are whole numbers without a unit. */
static bool put_number(char *field, uint64_t number)
{
	return snprintf(field, CONFIG_TEXT, "%llu", (unsigned long long)number) < CONFIG_TEXT;
}

static bool take_size(void *field, const char *value)
{
	uint64_t bytes;

	return size_parse(value, &bytes) == 0 && bytes > 0 && put_number(field, bytes);
}

static bool take_count(void *field, const char *value)
{
	uint64_t count;

	return size_parse_count(value, &count) == 0 && count > 0 && put_number(field, count);
}

/* The library reads it again. */
static bool take_limit(void *field, const char *value)
{
	uint64_t bytes;
	double percent;

	return ((size_parse(value, &bytes) == 0 && bytes > 0) || size_parse_percent(value, &percent) == 0) &&
	       take_text(field, value);
}

static bool take_engine(void *field, const char *value)
{
	return (!strcmp(value, "auto") || !strcmp(value, "segv") || !strcmp(value, "uffd") || !strcmp(value, "kernel")) &&
	       take_text(field, value);
}

#define FIELD(name) offsetof(struct config, name)

static const struct variable {
	const char *name;
	bool (*take)(void *field, const char *value);
	size_t field;
	const char *want;
} table[] = {
	{ "PCAF_ENABLED", take_flag, FIELD(enabled), "\"true\" or \"false\"" },
	{ "PCAF_PATH", take_folder, FIELD(path), "a folder that exists, with a name of less than 200 characters in one line" },
	{ "PCAF_RECOVER", take_folder, FIELD(recover), "a folder that exists, with a name of less than 200 characters in one line" },
	{ "PCAF_PREFIX", take_prefix, FIELD(prefix), "how the names of files begin, without a \"/\"" },
	{ "PCAF_SHAREDFILE", take_flag, FIELD(shared_file), "\"true\" or \"false\"" },
	{ "PCAF_UNLINK", take_flag, FIELD(unlink), "\"true\" or \"false\"" },
	{ "PCAF_CONSISTENT", take_flag, FIELD(consistent), "\"true\" or \"false\"" },
	{ "PCAF_FORCE", take_flag, FIELD(force), "\"true\" or \"false\"" },
	{ "PCAF_REPORT", take_flag, FIELD(report), "\"true\" or \"false\"" },
	{ "PCAF_SYNCFREQ", take_number, FIELD(syncfreq), "a number of milliseconds" },
	{ "PCAF_MIN", take_bytes, FIELD(min), "a number of bytes, such as 4096 or 1M" },
	{ "PCAF_SEGSIZE", take_segment, FIELD(segsize), "a power of two of at least the page, such as 65536 or 2M" },
	{ "PCAF_STRIPESIZE", take_size, FIELD(stripe_size), "a number of bytes of at least 1, such as 65536 or 1M" },
	{ "PCAF_STRIPECOUNT", take_count, FIELD(stripe_count), "a number of at least 1" },
	{ "PCAF_MEM_LIMIT", take_limit, FIELD(mem_limit), "a number of bytes of at least 1, such as 512M or 8G, or a part of the "
	  "memory, such as 50%" },
	{ "PCAF_ENGINE", take_engine, FIELD(engine), "\"auto\", \"segv\", \"uffd\" or \"kernel\"" },
	{ "PCAF_DRIVER", take_text, FIELD(driver), "a driver for files, such as \"posix\" or \"uring:?depth=64\"" },
};

bool config_wanted(void)
{
	const char *value = secure_getenv("PCAF_ENABLED");

	return value && *value && strcmp(value, "false") != 0;
}

/* What the kernel maps it writes when it likes, and as it likes. */
static void check_kernel(const struct config *c, struct error *e)
{
	if (c->consistent)
		error_set(e, MPI_ERR_ARG, "PCAF_ENGINE is \"kernel\", which writes changes at any time: PCAF_CONSISTENT must be "
			  "\"false\"");
	if (c->segsize || *c->driver || *c->mem_limit)
		error_set(e, MPI_ERR_ARG, "PCAF_SEGSIZE, PCAF_DRIVER and PCAF_MEM_LIMIT have no meaning with PCAF_ENGINE=kernel: "
			  "leave them out");
}

/* What one variable says of others. */
static void check_all(struct config *c, struct error *e)
{
	if (!*c->path)
		error_set(e, MPI_ERR_ARG, "PCAF_ENABLED is \"true\", but PCAF_PATH, the folder for the coarrays' files, is "
			  "missing");
	if (strcmp(c->path, c->recover) == 0)
		error_set(e, MPI_ERR_ARG, "PCAF_RECOVER is the same folder as PCAF_PATH: it must be another one");
	if (c->unlink)
		c->consistent = false;
	if (c->consistent && strstr(c->driver, "wal+"))
		error_set(e, MPI_ERR_ARG, "PCAF_DRIVER is \"%.100s\": files are behind wal+ as it is, where PCAF_CONSISTENT is \"true\": "
			  "leave it out", c->driver);
	c->kernel = strcmp(c->engine, "kernel") == 0;
	if (c->kernel)
		check_kernel(c, e);
	if (!c->segsize)
		c->segsize = SEGSIZE;
}

#define PREFIX "PCAF_"
#define MAX_CHANGES 3

static void warn_of_unknown(void)
{
	for (char **at = environ; at && *at; at++) {
		const char *nearest = NULL;
		size_t least = SIZE_MAX;
		char name[64];

		if (strncmp(*at, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at, "="), *at);
		for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
			size_t distance = spelling_distance(name, table[i].name);

			if (distance < least) {
				least = distance;
				nearest = table[i].name;
			}
		}
		if (least > 0)
			spelling_warn("variable", name, least <= MAX_CHANGES ? nearest : NULL);
	}
}

void config_read(struct config *c, struct error *e)
{
	static bool has_warned;
	const char *rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");

	if (!has_warned && (!rank || strcmp(rank, "0") == 0))
		warn_of_unknown();
	has_warned = true;
	*c = (struct config){ .consistent = true, .prefix = "OpenCoarrays_" };
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		const char *value = secure_getenv(table[i].name);

		if (value && *value && !table[i].take((char *)c + table[i].field, value))
			error_set(e, MPI_ERR_ARG, "%s is \"%.100s\": it must be %s", table[i].name, value, table[i].want);
	}
	check_all(c, e);
}

void config_apply(const struct config *c)
{
	if (*c->mem_limit)
		setenv("UMMAP_MEM_LIMIT", c->mem_limit, 1);
	if (*c->engine && strcmp(c->engine, "auto") != 0 && !c->kernel)
		setenv("UMMAP_ENGINE", c->engine, 1);
}
