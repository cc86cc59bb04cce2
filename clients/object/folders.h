/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the back end for folders share: folders.c and folders_gc.c. */
#ifndef OBJECT_FOLDERS_H
#define OBJECT_FOLDERS_H

#include "object/backend.h"

#include <dirent.h>
#include <pthread.h>

enum { LIVE, NAMES, VERSIONS, VIEWS, H5, LOCKS, FOLDERS };

/* A chunk that was written and is not durable yet. */
struct unsynced {
	struct umobject_id id;
	int fd;
	unsigned device;
};

/* So many are open at most. */
#define UNSYNCED 128

struct folders {
	struct backend b;
	char *path;
	int folder[FOLDERS];
	char **device_paths;    /* as seen from here */
	char **device_names;    /* as a view in views/ calls them */
	int *devices;           /* negative: it is not there */
	unsigned ndevices;
	pthread_mutex_t lock;
	struct unsynced unsynced[UNSYNCED];
	unsigned nunsynced;
};

struct lease {
	int fd;
	struct umobject_id id;
};

static inline struct folders *of(struct backend *b)
{
	return (struct folders *)b;
}

/* Whether a file that is open still has a name: if not, it was removed between being opened and being locked. */
bool folders_has_links(int fd);
/* To be read with readdir, and closed; NULL with a sentence. */
DIR *folders_read(const struct folders *f, int folder);

/* folders_gc.c */
int folders_collect(struct backend *b, struct umobject_garbage *removed);
int folders_version_remove(struct backend *b, const struct umobject_id *id, const struct source *own, size_t n);

#endif
