/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the hints and variables of the MPI-IO cache. hints.def has all hints. An invalid value is
 * an error; it is never changed to a valid one. All ranks must request the same cache: a rank with
 * a cache and a rank without one would wait for each other. Therefore each MPI_File_open needs one
 * small reduction, whether the file has a cache or not.
 */
#include "iocache/config.h"

#include "common/size.h"
#include "window/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum hint {
#define HINT(identifier, name, type, default, meaning) HINT_##identifier,
#include "iocache/hints.def"
#undef HINT
};

static const struct {
	const char *name;
	const char *type; /* completes "it must be ..." */
} table[] = {
#define HINT(identifier, name, type, default, meaning) { name, type },
#include "iocache/hints.def"
#undef HINT
};

static bool get(MPI_Info info, enum hint hint, char value[CONFIG_PATH])
{
	int found = 0;

	*value = '\0';
	if (info != MPI_INFO_NULL)
		PMPI_Info_get(info, table[hint].name, MPI_MAX_INFO_VAL, value, &found);
	return found;
}

static void refuse(struct error *e, enum hint hint, const char *value)
{
	error_set(e, MPI_ERR_INFO_VALUE, "%s is \"%.60s\": it must be %s", table[hint].name, value,
		  table[hint].type);
}

/* Whether the value is `yes`; false without a value. */
static bool read_word(MPI_Info info, enum hint hint, const char *no, const char *yes,
		      struct error *e)
{
	char value[CONFIG_PATH];

	if (!get(info, hint, value))
		return false;
	if (strcmp(value, no) != 0 && strcmp(value, yes) != 0)
		refuse(e, hint, value);
	return strcmp(value, yes) == 0;
}

static uint64_t read_bytes(MPI_Info info, enum hint hint, uint64_t min, uint64_t unit,
			   struct error *e)
{
	char value[CONFIG_PATH];
	uint64_t bytes = 0;

	if (get(info, hint, value) &&
	    (size_parse(value, &bytes) < 0 || bytes < min || bytes > INT64_MAX / 2 || bytes % unit))
		refuse(e, hint, value);
	return bytes;
}

static int read_flush(MPI_Info info, struct error *e)
{
	char value[CONFIG_PATH];
	uint64_t seconds;

	if (!get(info, HINT_FLUSH, value) || strcmp(value, "close") == 0)
		return CONFIG_AT_CLOSE;
	if (size_parse_count(value, &seconds) == 0 && seconds >= 1 && seconds <= CONFIG_AT_CLOSE)
		return (int)seconds;
	refuse(e, HINT_FLUSH, value);
	return CONFIG_AT_CLOSE;
}

const char *config_plain_name(const char *name)
{
	size_t len = strcspn(name, ":/");

	return len > 0 && name[len] == ':' ? name + len + 1 : name;
}

/* The folder of a file, which may not exist yet. */
static bool find_folder(const char *name, char real[PATH_MAX])
{
	char copy[PATH_MAX], *slash;

	if (strlen(name) >= sizeof(copy))
		return false;
	strcpy(copy, name);
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	return realpath(!slash ? "." : *copy ? copy : "/", real) != NULL;
}

/* Whether the file is in `folder` or below it. */
static bool is_under(const char *name, const char *folder)
{
	char real[PATH_MAX], all[PATH_MAX];
	size_t len;

	if (!folder || !*folder || !realpath(folder, all))
		return false;
	if (!find_folder(name, real) && !find_folder(config_plain_name(name), real))
		return false;
	len = strlen(all);
	return strncmp(real, all, len) == 0 && (real[len] == '/' || !real[len] || len == 1);
}

bool config_find_folder(MPI_Info info, const char *name, char path[CONFIG_PATH])
{
	const char *all = secure_getenv("UMMAP_IOCACHE_PATH");

	if (get(info, HINT_PATH, path))
		return *path;
	if (!all || strlen(all) >= CONFIG_PATH ||
	    !is_under(name, secure_getenv("UMMAP_IOCACHE_ALL")))
		return false;
	strcpy(path, all);
	return true;
}

static void read_path(struct config *c, MPI_Info info, const char *name, struct error *e)
{
	const char *path = secure_getenv("UMMAP_IOCACHE_PATH");

	if (get(info, HINT_PATH, c->path)) {
		c->wanted = true;
		if (!*c->path)
			refuse(e, HINT_PATH, "");
		return;
	}
	c->wanted = is_under(name, secure_getenv("UMMAP_IOCACHE_ALL"));
	if (c->wanted && (!path || strlen(path) >= sizeof(c->path)))
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot cache '%.80s', a file in UMMAP_IOCACHE_ALL: UMMAP_IOCACHE_PATH "
			  "is %s. Try a folder of each node",
			  name, path ? "too long" : "not set");
	else if (c->wanted)
		strcpy(c->path, path);
}

static void read_all(struct config *c, MPI_Info info, const char *name, struct error *e)
{
	memset(c, 0, sizeof(*c));
	read_path(c, info, name, e);
	if (!c->wanted)
		return;
	c->durable_write = read_word(info, HINT_DURABLE, "sync", "write", e);
	c->populate = read_word(info, HINT_POPULATE, "false", "true", e);
	c->keep = read_word(info, HINT_CLOSE, "flush", "keep", e);
	c->flush = read_flush(info, e);
	c->size = read_bytes(info, HINT_SIZE, (uint64_t)2 << 20, 1, e);
	c->stripe = read_bytes(info, HINT_STRIPE, 64 << 10, 64 << 10, e);
}

/* Uses a communicator of the library's: errors of files must not reach the program's. */
static void agree(MPI_Comm comm, struct error *e)
{
	MPI_Comm own;

	if (window_own_comm(comm, &own) != MPI_SUCCESS)
		return;
	error_agree(own, e);
	PMPI_Comm_free(&own);
}

void config_agree(struct config *c, MPI_Info info, const char *name, MPI_Comm comm, struct error *e)
{
	/* [0]: any rank wants a cache. [1], [2]: a hash of the request and its negative, whose
	 * maxima have the same absolute value if all ranks agree. [3]: any rank has an error. */
	int64_t sum[4] = { 0 };
	uint64_t hash;

	read_all(c, info, name, e);
	hash = XXH3_64bits_withSeed(name, c->wanted ? strlen(name) : 0, XXH3_64bits(c, sizeof(*c)));
	sum[0] = c->wanted;
	sum[1] = (int64_t)(hash >> 1);
	sum[2] = -sum[1];
	sum[3] = e->class != MPI_SUCCESS;
	PMPI_Allreduce(MPI_IN_PLACE, sum, 4, MPI_INT64_T, MPI_MAX, comm);
	if (sum[3])
		agree(comm, e);
	else if (sum[0] && sum[1] != -sum[2])
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot cache '%.80s': the ranks do not give the same hints for the "
			  "cache. Try the same name of the file and the same hints at all ranks",
			  name);
}

void config_write(const struct config *c, MPI_Info info)
{
	char text[32];

	PMPI_Info_set(info, table[HINT_PATH].name, c->path);
	PMPI_Info_set(info, table[HINT_DURABLE].name, c->durable_write ? "write" : "sync");
	PMPI_Info_set(info, table[HINT_POPULATE].name, c->populate ? "true" : "false");
	PMPI_Info_set(info, table[HINT_CLOSE].name, c->keep ? "keep" : "flush");
	snprintf(text, sizeof(text), "%d", c->flush);
	PMPI_Info_set(info, table[HINT_FLUSH].name, c->flush == CONFIG_AT_CLOSE ? "close" : text);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)c->size);
	if (c->size)
		PMPI_Info_set(info, table[HINT_SIZE].name, text);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)c->stripe);
	if (c->stripe)
		PMPI_Info_set(info, table[HINT_STRIPE].name, text);
}
