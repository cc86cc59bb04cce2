/* SPDX-License-Identifier: BSD-3-Clause */
/* Lock: `lock`, around the list of files. It is held while parts are removed. */
#include "iocache/gone.h"

#include "iocache/former.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file that has had a cache in this process. */
struct known {
	struct known *next;
	char *path, *folder;
	bool owned;              /* whether this process owns this node's part */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *first, **end = &first;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int sweep_at_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm, (void)key, (void)value, (void)extra;
	gone_sweep(SIZE_MAX);
	return MPI_SUCCESS;
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first. */
static void begin_to_sweep(void)
{
	int key;

	if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, sweep_at_finalize, &key, NULL) ==
	    MPI_SUCCESS)
		PMPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

static bool is_known(const char *path, const char *folder)
{
	const struct known *k;

	for (k = first; k && (strcmp(k->path, path) != 0 || strcmp(k->folder, folder) != 0);
	     k = k->next)
		;
	return k;
}

static void free_known(struct known *k)
{
	free(k->path);
	free(k->folder);
	free(k);
}

static void append(struct known *k)
{
	k->next = NULL;
	*end = k;
	end = &k->next;
}

static struct known *take_first(void)
{
	struct known *k = first;

	first = k->next;
	if (!first)
		end = &first;
	return k;
}

void gone_note(const struct cached *c)
{
	struct known *k = calloc(1, sizeof(*k));

	if (!k)
		return;
	k->path = strdup(c->path);
	k->folder = strdup(c->config.path);
	k->owned = c->nodes.owns;
	pthread_once(&once, begin_to_sweep);
	pthread_mutex_lock(&lock);
	/* Without memory, the parts stay. */
	if (!k->path || !k->folder || is_known(k->path, k->folder))
		free_known(k);
	else
		append(k);
	pthread_mutex_unlock(&lock);
}

static void remove_from(const char *path, const char *folder, uint64_t ino)
{
	char name[CACHED_NAME];

	open_file_name(name, path);
	former_remove(name, folder, ino);
}

static bool is_missing(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

void gone_sweep(size_t most)
{
	struct known *last;
	bool over = false;

	pthread_mutex_lock(&lock);
	last = first ? (struct known *)((char *)end - offsetof(struct known, next)) : NULL;
	while (first && !over && most-- > 0) {
		struct known *k = take_first();

		over = k == last;
		/* An open file removes its parts when it is closed. */
		if (!k->owned || open_file_is_open(k->path) || !is_missing(k->path)) {
			append(k);
			continue;
		}
		remove_from(k->path, k->folder, 0);
		free_known(k);
	}
	pthread_mutex_unlock(&lock);
}

void gone_find(struct gone *g, const char *name, MPI_Info info)
{
	char folder[CONFIG_PATH];
	struct stat st;
	bool any;

	*g = (struct gone){ 0 };
	pthread_mutex_lock(&lock);
	any = first;
	pthread_mutex_unlock(&lock);
	if (!name || (!any && !config_find_folder(info, name, folder)))
		return;
	g->name = strdup(name);
	g->path = realpath(name, NULL);
	if (!g->path)
		g->path = realpath(config_plain_name(name), NULL);
	if (g->path && stat(g->path, &st) == 0)
		g->ino = st.st_ino;
}

void gone_remove(const struct gone *g, MPI_Info info)
{
	char folder[CONFIG_PATH];
	const struct known *k;

	/* The file still exists if a link to it was deleted. An open file removes its parts when it
	 * is closed. */
	if (!g->path || !g->name || !is_missing(g->path) || open_file_is_open(g->path))
		return;
	if (config_find_folder(info, g->name, folder))
		remove_from(g->path, folder, g->ino);
	pthread_mutex_lock(&lock);
	for (k = first; k; k = k->next)
		if (strcmp(k->path, g->path) == 0)
			remove_from(k->path, k->folder, g->ino);
	pthread_mutex_unlock(&lock);
}

void gone_free(struct gone *g)
{
	free(g->name);
	free(g->path);
}
