/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A value is taken or refused, never bent. All ranks have to want the same: who has a cache and who has none would wait for each
 * other. So each MPI_File_open costs one small reduction, whether there is a cache or not.
 */
#include "iocache/config.h"

#include "base/size.h"
#include "window/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static bool get(MPI_Info info, const char *key, char value[CONFIG_PATH])
{
	int found = 0;

	*value = '\0';
	if (info != MPI_INFO_NULL)
		PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
	return found;
}

static void refuse(struct error *e, const char *key, const char *value, const char *must)
{
	error_set(e, MPI_ERR_INFO_VALUE, "%s is \"%.60s\": it must be %s", key, value, must);
}

/* Which of two words it is; `none` if it is not there. */
static bool read_word(MPI_Info info, const char *key, const char *no, const char *yes, bool none, struct error *e)
{
	char value[CONFIG_PATH], must[64];

	if (!get(info, key, value))
		return none;
	snprintf(must, sizeof(must), "%s or %s", no, yes);
	if (strcmp(value, no) != 0 && strcmp(value, yes) != 0)
		refuse(e, key, value, must);
	return strcmp(value, yes) == 0;
}

static uint64_t read_bytes(MPI_Info info, const char *key, uint64_t least, uint64_t unit, const char *must, struct error *e)
{
	char value[CONFIG_PATH];
	uint64_t bytes = 0;

	if (get(info, key, value) && (size_parse(value, &bytes) < 0 || bytes < least || bytes > INT64_MAX / 2 || bytes % unit))
		refuse(e, key, value, must);
	return bytes;
}

static int read_flush(MPI_Info info, struct error *e)
{
	char value[CONFIG_PATH], *end;
	long seconds = CONFIG_AT_CLOSE;

	if (!get(info, "pmem_flush", value) || strcmp(value, "close") == 0)
		return CONFIG_AT_CLOSE;
	seconds = strtol(value, &end, 10);
	if (end == value || *end || seconds < 1 || seconds > CONFIG_AT_CLOSE)
		refuse(e, "pmem_flush", value, "a number of seconds from 1 to 1000000, or close");
	return (int)seconds;
}

/* The words of the library that was there first. */
static void read_theirs(struct config *c, MPI_Info info, struct error *e)
{
	char mode[CONFIG_PATH];

	if (get(info, "pmem_io_mode", mode) && strcmp(mode, "0") != 0 && strcmp(mode, "1") != 0)
		refuse(e, "pmem_io_mode", mode, "0, for a cache, or 1, for a file that needs none");
	/* The file is on persistent memory itself. */
	if (strcmp(mode, "1") == 0)
		c->wanted = false;
	if (read_word(info, "failure_recovery", "false", "true", false, e))
		c->durable_write = true;
	c->recover = read_word(info, "do_recovery", "false", "true", false, e);
	if (get(info, "do_recovery_path", c->old) && !c->recover)
		*c->old = '\0';
}

const char *config_plain_name(const char *name)
{
	size_t len = strcspn(name, ":/");

	return len > 0 && name[len] == ':' ? name + len + 1 : name;
}

/* The folder of a file that need not be there yet. */
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

/* Files under UMMAP_IOCACHE_ALL have one without a hint. */
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

	if (get(info, "pmem_path", path))
		return *path;
	if (!all || strlen(all) >= CONFIG_PATH || !is_under(name, secure_getenv("UMMAP_IOCACHE_ALL")))
		return false;
	strcpy(path, all);
	return true;
}

static void read_path(struct config *c, MPI_Info info, const char *name, struct error *e)
{
	const char *path = secure_getenv("UMMAP_IOCACHE_PATH");

	if (get(info, "pmem_path", c->path)) {
		c->wanted = true;
		if (!*c->path)
			refuse(e, "pmem_path", "", "a folder of each node");
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
	char mode[CONFIG_PATH];

	memset(c, 0, sizeof(*c));
	read_path(c, info, name, e);
	if (!c->wanted && get(info, "pmem_io_mode", mode) && strcmp(mode, "0") == 0)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot cache '%.80s', as pmem_io_mode=0 requires: pmem_path is not set. "
			  "Try a folder of each node",
			  name);
	if (!c->wanted)
		return;
	c->durable_write = read_word(info, "pmem_durable", "sync", "write", false, e);
	c->populate = read_word(info, "pmem_populate", "false", "true", false, e);
	c->keep = read_word(info, "pmem_close", "flush", "keep", false, e);
	c->flush = read_flush(info, e);
	c->size = read_bytes(info, "pmem_size", (uint64_t)2 << 20, 1, "a size of at least 2M", e);
	c->stripe = read_bytes(info, "pmem_stripe", 64 << 10, 64 << 10, "a multiple of 64K", e);
	read_theirs(c, info, e);
	if (!c->wanted)
		memset(c, 0, sizeof(*c));
}

/* Not by the program's communicator: errors of files are none of its. */
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
	/* Wanted by any, and a number of what is wanted with its negative: the greatest of both are one number if all have it. */
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

	PMPI_Info_set(info, "pmem_path", c->path);
	PMPI_Info_set(info, "pmem_durable", c->durable_write ? "write" : "sync");
	PMPI_Info_set(info, "pmem_populate", c->populate ? "true" : "false");
	PMPI_Info_set(info, "pmem_close", c->keep ? "keep" : "flush");
	snprintf(text, sizeof(text), "%d", c->flush);
	PMPI_Info_set(info, "pmem_flush", c->flush == CONFIG_AT_CLOSE ? "close" : text);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)c->size);
	if (c->size)
		PMPI_Info_set(info, "pmem_size", text);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)c->stripe);
	if (c->stripe)
		PMPI_Info_set(info, "pmem_stripe", text);
}
