/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the back end for folders share: folders.c and folders_gc.c. */
#ifndef OBJECT_FOLDERS_H
#define OBJECT_FOLDERS_H

#include "object/backend.h"
#include "object/message.h"

#include <dirent.h>
#include <pthread.h>

enum { LIVE, NAMES, VERSIONS, VIEWS, H5, LOCKS, FOLDERS };

/* A chunk that was written and is not durable yet; or, without a descriptor, that chunks of this id could not be made durable. */
struct unsynced {
	struct umobject_id id;
	int fd;
	unsigned device;
	int error;
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
	unsigned nunsynced, most; /* most: so many of them may be open */
	unsigned keep;          /* versions of a name */
};

struct lease {
	int fd;
	struct umobject_id id;
};

static inline struct folders *of(struct backend *b)
{
	return (struct folders *)b;
}

/* NULL: no memory. */
struct lease *folders_lease(const struct umobject_id *id, int fd);
/* To be read with readdir, and closed; NULL with a sentence. */
DIR *folders_read(const struct folders *f, int folder);
/* To be locked: that of somebody else can be by who may only read it, but for some file systems of networks. -1 with errno. */
int folders_open_to_lock(const struct folders *f, int folder, const char *file);

/* folders_gc.c */
int folders_all_versions(struct backend *b, int (*each)(void *arg, const struct umobject_id *id), void *arg);
int folders_version_there(struct backend *b, const struct umobject_id *id, bool *there);
int folders_version_claim(struct backend *b, const struct umobject_id *id, struct lease **claim, void **bytes, size_t *size);
int folders_sweep(struct backend *b, bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg,
		  struct umobject_garbage *removed);

#endif
