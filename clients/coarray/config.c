/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * variables.def has all variables. An empty value means that the variable is not set. An invalid
 * value is an error; it is never changed to a valid one.
 */
#include "coarray/config.h"

#include "common/size.h"
#include "window/hints.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SEGMENT_BYTES ((uint64_t)64 << 10)

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

/* The manifest has the path in one line. */
bool config_take_folder(void *field, const char *value)
{
	struct stat st;
	char *path = stat(value, &st) == 0 && S_ISDIR(st.st_mode) ? realpath(value, NULL) : NULL;
	bool good = path && !strchr(path, '\n') && take_text(field, path);

	free(path);
	return good;
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

	return size_parse(value, bytes) == 0 && *bytes >= (uint64_t)sysconf(_SC_PAGESIZE) &&
	       !(*bytes & (*bytes - 1));
}

#define FIELD(name) offsetof(struct config, name)

static const struct variable {
	const char *name;
	bool (*take)(void *field, const char *value);
	size_t field;
	const char *type; /* completes "it must be ..." */
} table[] = {
#define VARIABLE(name, take, field, type, default, meaning, page) \
	{ name, take, FIELD(field), type },
#include "coarray/variables.def"
#undef VARIABLE
};

bool config_is_wanted(void)
{
	const char *value = secure_getenv("PCAF_ENABLED");

	return value && *value && strcmp(value, "false") != 0;
}

/* Checks values that depend on each other. */
static void check_all(struct config *c, struct error *e)
{
	const char *driver = secure_getenv("UMMAP_DRIVER");

	if (!*c->path)
		error_set(e, MPI_ERR_ARG,
			  "cannot keep coarrays, as PCAF_ENABLED=true requires: PCAF_PATH is not "
			  "set. Try PCAF_PATH=FOLDER");
	if (strcmp(c->path, c->recover) == 0)
		error_set(e, MPI_ERR_ARG,
			  "cannot use PCAF_RECOVER '%.100s': it is the folder of PCAF_PATH. Try "
			  "another PCAF_PATH",
			  c->recover);
	if (c->unlink)
		c->consistent = false;
	if (driver && !take_text(c->driver, driver))
		error_set(e, MPI_ERR_ARG, "cannot use UMMAP_DRIVER '%.100s...': it is too long",
			  driver);
	if (c->consistent && strstr(c->driver, "wal+"))
		error_set(e, MPI_ERR_ARG,
			  "cannot use UMMAP_DRIVER '%.100s': PCAF_CONSISTENT=true adds wal+ "
			  "itself. Try the driver without wal+",
			  c->driver);
}

#define PREFIX "PCAF_"
#define MAX_TYPING_ERRORS 3

static void warn_of_unknown(void)
{
	for (char **at = environ; at && *at; at++) {
		const char *nearest;
		size_t changes;
		char name[64];

		if (strncmp(*at, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at, "="), *at);
		nearest = spelling_find(name, table, sizeof(*table),
					sizeof(table) / sizeof(*table), &changes);
		if (changes > 0)
			spelling_warn("variable", name,
				      changes <= MAX_TYPING_ERRORS ? nearest : NULL);
	}
}

void config_read(struct config *c, struct error *e)
{
	const char *open_mpi = getenv("OMPI_COMM_WORLD_RANK");
	const char *rank = open_mpi ? open_mpi : getenv("PMI_RANK");

	if (!rank || strcmp(rank, "0") == 0)
		warn_of_unknown();
	*c = (struct config){ .consistent = true, .prefix = "OpenCoarrays_",
			      .segsize = DEFAULT_SEGMENT_BYTES };
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		const char *value = secure_getenv(table[i].name);

		if (value && *value && !table[i].take((char *)c + table[i].field, value))
			error_set(e, MPI_ERR_ARG, "%s is \"%.100s\": it must be %s",
				  table[i].name, value, table[i].type);
	}
	check_all(c, e);
}
